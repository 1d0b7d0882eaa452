"""The law that a rule commits at one node, by enumeration of every order in which children can be drawn: the slow way,
through nothing but the rule's judge."""

from collections.abc import Sequence

import torch
from scipy.optimize import linprog
from torch import Tensor

from lantern.types import AcceptanceRule, Site

CODES, ROWS = 6, 32
CODEBOOK = torch.randn(CODES, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def random_laws(seed: int, codes: int = CODES) -> Tensor:
    """[B, V] float64, with zeros and ties; the first two rows are a one-hot and the uniform law."""
    logits = torch.randn(ROWS, codes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    law = logits.masked_fill(logits < -1.3, -torch.inf).softmax(-1)
    law[0], law[1] = torch.eye(codes, dtype=torch.float64)[seed % codes], 1 / codes
    return law


def law_of_drawn(rule: AcceptanceRule, p: Tensor, q: Tensor, children: int, depth: int = 1) -> Tensor:
    """p, q [B, V] -> [B, V] when `children` are drawn from q without replacement and judged in that order."""

    def walk(left: Tensor, rest: Tensor, rank: int) -> Tensor:
        if rank == children:
            return left
        found = torch.zeros_like(p)
        exhausted = rest.sum(1) == 0
        found[exhausted] = left[exhausted]
        for code in range(p.shape[1]):
            x = torch.full((len(p),), code)
            accept, residual = rule.judge(left, rest, x, _site(p, depth, rank))
            without = rest.scatter(1, x[:, None], 0)
            without = without / without.sum(1, keepdim=True).clamp(min=1e-300)
            below = walk(residual, without, rank + 1) if bool((rest[:, code] > 0).any()) else p
            drawn = (1 - accept)[:, None] * below
            drawn[:, code] += accept
            found += rest[:, code, None] * drawn
        return found

    return walk(p, q, 0)


def law_of_chosen(rule: AcceptanceRule, p: Tensor, tokens: Sequence[int]) -> Tensor:
    """p [B, V] -> [B, V] when these tokens are the children."""
    found, left, open_ = torch.zeros_like(p), p, torch.ones_like(p[:, :1])
    for rank, code in enumerate(tokens):
        accept, left = rule.judge(left, None, torch.full((len(p),), code), _site(p, 1, rank))
        found[:, code] += open_[:, 0] * accept
        open_ = open_ * (1 - accept)[:, None]
    return found + open_ * left


def total_variation(p: Tensor, q: Tensor) -> Tensor:  # [B, V], [B, V] -> [B]
    return (p - q).abs().sum(-1) / 2


def _site(p: Tensor, depth: int, rank: int) -> Site:
    return Site(torch.full((len(p),), depth), torch.full((len(p),), rank), p)


def wasserstein(p: Tensor, r: Tensor, codebook: Tensor) -> float:
    """Exact W1 of two laws [V] by linear programming, in units of the mean nearest-neighbour distance."""
    distance = torch.cdist(codebook, codebook)
    unit = distance.masked_fill(torch.eye(len(codebook), dtype=torch.bool), torch.inf).amin(1).mean()
    size = len(p)
    sends = torch.eye(size, dtype=torch.float64).repeat_interleave(size, 1)
    takes = torch.eye(size, dtype=torch.float64).repeat(1, size)
    plan = linprog(
        (distance / unit).flatten().numpy(), A_eq=torch.cat([sends, takes]).numpy(), b_eq=torch.cat([p, r]).numpy()
    )
    assert plan.success
    return float(plan.fun)
