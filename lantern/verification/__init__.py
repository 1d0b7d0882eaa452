"""Verification: which path of a tree is accepted. Ratio judges codes by every rule, on every tree; shared noise needs a
rule with a law to pick from, block a chain as well. Those of latents are in lantern/continuous."""

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
    """Shared noise as the rule allows it: by the target's law, by p~ for each token, or by the rule's own law r."""
    return SharedLaw() if isinstance(rule, CommittedLaw) and not rule.lossless else SharedNoise()


def choose_published(rule: AcceptanceRule, sampling: Sampling) -> Verification:
    """What papers measure with: speculative sampling, and agreement of the likeliest codes in greedy decoding."""
    return choose_shared_noise(rule) if sampling.is_greedy else Ratio()
