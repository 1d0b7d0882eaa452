"""Where a drafter's law is compared with the target's: the contract of all losses between the two."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


def overlap(p: Tensor, q: Tensor) -> Tensor:  # [..., V], [..., V] -> [...]
    """alpha: the acceptance probability of a token drawn from q and judged by p (Leviathan et al., 2211.17192)."""
    return torch.minimum(p, q).sum(-1)


@dataclass(frozen=True, eq=False)
class Sites:
    """Positions at which a drafter predicts; what several losses read is computed once."""

    p: Tensor  # [..., V] the target's law
    log_q: Tensor  # [..., V] of the drafter's, float32 at least; carries the gradient
    noise: Callable[[], Tensor]  # -> [..., V] exp(G) of shared noise at these positions

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
