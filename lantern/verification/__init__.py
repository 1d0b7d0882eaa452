"""Verification: which path of a tree is accepted. Two exact ways carry every rule and every tree."""

from lantern.sampling import Sampling
from lantern.types import AcceptanceRule
from lantern.verification.ratio import Ratio
from lantern.verification.shared_noise import SharedNoise


def by_rule(rule: AcceptanceRule, sampling: Sampling) -> Ratio | SharedNoise:
    """The default: the rule's own way; greedy decoding has no coins to toss and is always verified by shared noise."""
    return SharedNoise() if sampling.is_greedy or rule.verification == "shared_noise" else Ratio()
