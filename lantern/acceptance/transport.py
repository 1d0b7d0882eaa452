"""Transport budget (ours): LANTERN's idea with a guarantee. The committed law r is p moved towards q between
neighbouring codes, by a transport plan of cost at most ε, which bounds the Wasserstein distance W1(p, r)."""

import torch
from torch import Tensor

from lantern.acceptance.committed import judge_by_own_law
from lantern.acceptance.neighbours import distances, nearest
from lantern.acceptance.relaxed import normalise
from lantern.errors import LanternError


class Transport:
    """W1(p, r) <= eps given the prefix, in units of the mean distance of a code to its nearest. For j = 1 … k each code
    with p > q sends its surplus to its j-th neighbour if that has p < q; if senders exceed what a receiver lacks, all
    are scaled. The plan proves the bound; it is not optimal."""

    name = "transport"
    verification = "ratio"  # by default
    judge = judge_by_own_law

    def __init__(self, codebook: Tensor, k: int, eps: float) -> None:
        """codebook [V, C]; k neighbours, 1 <= k < V; eps >= 0."""
        if k < 1:
            raise LanternError(f"acceptance.k={k} leaves no neighbour to send mass to; give 1 or more")
        if not 0 <= eps < float("inf"):
            raise LanternError(f"acceptance.eps={eps} bounds a distance; give 0 or more")
        near = nearest(codebook, k)
        far = distances(codebook, near)
        unit = far[:, 0].mean()
        if unit == 0:
            raise LanternError("acceptance=transport measures in distances between codes; all codes here are equal")
        self._to = near.T.contiguous()  # [K, V]
        self._cost = (far / unit).T.contiguous()  # [K, V]
        self.k, self.eps, self.lossless = k, eps, eps == 0
        self.parameters = {"k": k, "eps": eps}

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
        tiny = torch.finfo(p.dtype).tiny
        first_surplus, first_lack = (p - q).clamp(min=0), (q - p).clamp(min=0)
        surplus, lack, left = first_surplus, first_lack, torch.full_like(p[:, :1], self.eps)
        for to, cost in zip(self._to, self._cost.to(p.dtype), strict=True):
            asked = torch.zeros_like(p).scatter_add_(1, to.expand_as(p), surplus)
            granted = (lack / asked.clamp(min=tiny)).clamp(max=1)  # [M, V] share that each receiver accepts
            sent = surplus * granted[:, to]
            price = (sent @ cost)[:, None]
            share = (left / price.clamp(min=tiny)).clamp(max=1)
            surplus, lack = surplus - share * sent, lack - share * torch.minimum(asked, lack)
            left = (left - share * price).clamp(min=0)
            if left.is_cpu and not bool((left > 0).any()):  # on another device this would synchronise
                break
        # a sum of non-negative masses: a difference from p could round below zero
        moved = normalise(torch.minimum(p, q) + surplus + (first_lack - lack), p)
        return torch.where(left < self.eps, moved, p)
