"""From losses per site to the loss of a step. Sites are aligned by chain: entry [d, b, s] is the site at depth d of the
chain behind root s of image b, whose tokens are the image's own. Where a chain has been dropped, the entry is 0."""

from typing import Protocol

import torch
from torch import Tensor


class Objective(Protocol):
    """losses, alphas [depth, B, S] -> scalar. Alphas are the overlaps of p and q, without gradient."""

    def __call__(self, losses: Tensor, alphas: Tensor) -> Tensor: ...


class Mean:
    """All depths alike."""

    def __call__(self, losses: Tensor, alphas: Tensor) -> Tensor:
        return losses.mean()


class Decayed:
    """Depth d counts rate^d (EAGLE-3's code, rate 0.8)."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, losses: Tensor, alphas: Tensor) -> Tensor:
        weights = self.rate ** torch.arange(len(losses), dtype=losses.dtype, device=losses.device)
        return (weights * losses.mean((1, 2))).sum()


class DynamicPace:
    """D-PACE's weights: with s = (1 - floor) alpha + floor and P_m the product of s up to depth m, depth d counts the
    sum of P_m over m >= d, without gradient. The published s reads q of the label; here alpha takes its place, the
    probability with which sampled tokens are accepted."""

    def __init__(self, floor: float) -> None:
        self.floor = floor

    def __call__(self, losses: Tensor, alphas: Tensor) -> Tensor:
        reached = ((1 - self.floor) * alphas + self.floor).cumprod(0)
        return (reached.flip(0).cumsum(0).flip(0) * losses).mean()


class ExpectedLength:
    """-(1 + sum over d of the product of the first d acceptance probabilities): minus the tokens a step of a chain. For
    TotalVariation, whose losses are 1 - alpha."""

    def __call__(self, losses: Tensor, alphas: Tensor) -> Tensor:
        return -(1 + (1 - losses).cumprod(0).sum(0)).mean()


class ConditionalDrop:
    """P-EAGLE's (2602.01469) conditional dropping: a share of max(rate^d, least) of the chains, drawn at random, has a
    pass d, and a chain that has it has all passes before. For objectives that are sums over sites."""

    def __init__(self, rate: float, least: float) -> None:
        self.rate, self.least = rate, least

    def passes(self, count: int, depth: int, generator: torch.Generator) -> Tensor:
        """-> [count] the number of passes of each chain, of `depth` at most."""
        rank = torch.randperm(count, generator=generator)
        shares = [max(self.rate**d, self.least) for d in range(depth)]
        return torch.stack([rank < max(1, round(share * count)) for share in shares]).sum(0)


def chained_length(accepted: Tensor) -> Tensor:  # [depth, B, T] -> scalar
    """Mean accepted length of a chain: sum over d of the product of the first d acceptance probabilities.

    accepted[d, :, t] is the probability at token t after d drafted tokens: a chain follows the diagonal.
    """
    depth, _, length = accepted.shape
    roots = length - depth + 1
    diagonal = torch.stack([accepted[d, :, d : d + roots] for d in range(depth)])
    return diagonal.cumprod(0).sum(0).mean()
