"""Verification: which path of a tree is accepted. Two exact ways carry every rule and tree; block is for chains."""

from typing import Protocol, runtime_checkable

from lantern.acceptance.committed import CommittedLaw
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Verification
from lantern.verification.ratio import Ratio
from lantern.verification.shared_law import SharedLaw
from lantern.verification.shared_noise import SharedNoise


class TimedHead(Protocol):
    """A head that knows how long it has run."""

    seconds: float  # on the host


@runtime_checkable
class HeadRunner(Protocol):
    """A capability of a verification: it runs a head of the target's behind the pass."""

    @property
    def head(self) -> TimedHead: ...


def by_rule(rule: AcceptanceRule, sampling: Sampling) -> Verification:
    """The default: the rule's own verification; greedy decoding tosses no coins and always takes shared noise."""
    return shared(rule) if rule.verification == "shared_noise" else published(rule, sampling)


def shared(rule: AcceptanceRule) -> Verification:
    """Shared noise as the rule allows it: by the target's law, by p~ for each token, or by the rule's own law r."""
    return SharedLaw() if isinstance(rule, CommittedLaw) and not rule.lossless else SharedNoise()


def published(rule: AcceptanceRule, sampling: Sampling) -> Verification:
    """What papers measure with: speculative sampling, and agreement of the likeliest codes in greedy decoding."""
    return shared(rule) if sampling.is_greedy else Ratio()
