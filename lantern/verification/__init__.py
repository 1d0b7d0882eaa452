"""Verification decides which path of a tree is accepted. For codes, ratio takes every rule on every tree; shared noise
needs a rule that names a law to pick from; block also needs a chain. For latents, see lantern/continuous."""

from lantern.acceptance.committed import CommittedLaw
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Verification
from lantern.verification.ratio import Ratio
from lantern.verification.shared_law import SharedLaw
from lantern.verification.shared_noise import SharedNoise


def choose_by_rule(rule: AcceptanceRule, sampling: Sampling) -> Verification:
    """The default: the rule's own verification; greedy decoding tosses no coins and always takes shared noise."""
    if rule.verification not in ("shared_noise", "ratio"):
        raise LanternError(
            f"verification=auto chooses from shared_noise and ratio, acceptance={rule.name} is judged by neither; give "
            f"verification={rule.verification}"
        )
    return choose_shared_noise(rule) if rule.verification == "shared_noise" else choose_published(rule, sampling)


def choose_shared_noise(rule: AcceptanceRule) -> Verification:
    """Shared noise that fits the rule: it picks from the target's law, from each token's p~, or from the rule's r."""
    return SharedLaw() if isinstance(rule, CommittedLaw) and not rule.lossless else SharedNoise()


def choose_published(rule: AcceptanceRule, sampling: Sampling) -> Verification:
    """The verification that papers use: speculative sampling; in greedy decoding, agreement with the likeliest code."""
    return choose_shared_noise(rule) if sampling.is_greedy else Ratio()
