"""Losses of a drafter's law against the target's: at each site, and from the sites of chains to the loss of a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lantern.sampling import entropy

MIN_ALPHA = 1e-6  # keeps the gradient of log alpha finite


def overlap(p: Tensor, q: Tensor) -> Tensor:  # [..., V], [..., V] -> [...]
    """alpha: the acceptance probability of a token drawn from q and judged by p (Leviathan et al., 2211.17192)."""
    return torch.minimum(p, q).sum(-1)


@dataclass(frozen=True, eq=False)
class Sites:
    """Positions at which a drafter predicts. What several losses read is computed once."""

    p: Tensor  # [..., V] the target's law
    log_q: Tensor  # [..., V] the log of the drafter's law, at least float32; carries the gradient

    @cached_property
    def q(self) -> Tensor:  # [..., V]
        """The drafter's law."""
        return self.log_q.exp()

    @cached_property
    def alpha(self) -> Tensor:  # [...]
        """The overlap of p and q, with a gradient that takes two operations where minimum's takes six."""
        below = (self.q.detach() < self.p).to(self.p.dtype)
        return self.p.sum(-1) + torch.linalg.vecdot(self.q, below) - torch.linalg.vecdot(self.p, below)


class SiteLoss(Protocol):
    """A loss between the laws at a site. Each site's loss depends on its own log_q alone."""

    def __call__(self, sites: Sites) -> Tensor: ...  # -> [...]


class Part(NamedTuple):
    """A loss and its weight."""

    weight: float
    loss: SiteLoss


class Blend:
    """A weighted sum of losses."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)

    def __call__(self, sites: Sites) -> Tensor:
        first, *others = (part.weight * part.loss(sites) for part in self.parts)
        return sum(others, first)


class CrossEntropy:
    """-sum_x p(x) log q(x) over the whole law, as EAGLE distils it (2401.15077)."""

    def __call__(self, sites: Sites) -> Tensor:
        return -torch.linalg.vecdot(sites.p, sites.log_q)


class TopCodes:
    """HASS (2408.15766, section 3.1): -sum of p(x) log q(x) over the `count` likeliest codes of p."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, sites: Sites) -> Tensor:
        best = sites.p.topk(min(self.count, sites.p.shape[-1]))
        return -(best.values * sites.log_q.gather(-1, best.indices)).sum(-1)


class LogOverlap:
    """The LK loss (2602.23881): -log alpha."""

    def __call__(self, sites: Sites) -> Tensor:
        return -sites.alpha.clamp(min=MIN_ALPHA).log()


class AdaptiveHybrid:
    """LK's adaptive hybrid (2602.23881): lambda KL(p, q) + (1 - lambda) (1 - alpha), lambda = exp(-eta alpha) without
    gradient. Where the laws are far apart KL leads, since its gradient does not vanish. The paper's eta is 3."""

    def __init__(self, eta: float) -> None:
        self.eta = eta

    def __call__(self, sites: Sites) -> Tensor:
        share = torch.exp(-self.eta * sites.alpha.detach())
        divergence = -entropy(sites.p) - torch.linalg.vecdot(sites.p, sites.log_q)
        return share * divergence + (1 - share) * (1 - sites.alpha)


class Objective(Protocol):
    """losses [depth, B, S] -> scalar. [d, b, s]: the site at depth d of the chain of image b's tokens behind root s."""

    def __call__(self, losses: Tensor) -> Tensor: ...


class Mean:
    """All depths alike."""

    def __call__(self, losses: Tensor) -> Tensor:
        return losses.mean()


class Decayed:
    """Sum over depths, depth d weighted by rate^d (EAGLE-3's code, rate 0.8)."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, losses: Tensor) -> Tensor:
        weights = self.rate ** torch.arange(len(losses), dtype=losses.dtype, device=losses.device)
        return (weights * losses.mean((1, 2))).sum()


def chained_length(accepted: Tensor) -> Tensor:  # [depth, B, T] -> scalar
    """Mean accepted length of a chain: sum over d of the product of the first d acceptance probabilities.

    accepted[d, :, t] is the probability at token t after d drafted tokens: a chain follows the diagonal.
    """
    depth, _, length = accepted.shape
    roots = length - depth + 1
    diagonal = torch.stack([accepted[d, :, d : d + roots] for d in range(depth)])
    return diagonal.cumprod(0).sum(0).mean()
