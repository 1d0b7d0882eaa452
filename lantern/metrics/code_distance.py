"""Distance in the codebook between a token of p and the committed one; 1 is the mean distance of a code to its
nearest."""

import torch
from torch import Tensor

from lantern.acceptance.neighbours import distances, nearest

RANKS = 256  # of neighbours that mass is moved to; the rest is moved to any code
ROWS_AT_ONCE = 1024  # of a table of distances


class CodeDistance:
    """Expected distance between a token drawn from p and the committed one, under a coupling in which they are equal as
    often as possible: a code's surplus mass moves to its nearest codes with a deficit. The value is the cost of one
    transport plan and so an upper bound of the Wasserstein distance W1(p, law)."""

    def __init__(self, codebook: Tensor, ranks: int = RANKS) -> None:
        """codebook [V, C]"""
        self._codebook = codebook.double()
        near = nearest(codebook, min(ranks, len(codebook) - 1))
        far = distances(codebook, near)
        self._unit = float(far[:, 0].mean()) or 1.0  # 1 where all codes are equal
        self._to, self._cost = near.T.contiguous(), (far / self._unit).T.contiguous()  # [K, V]

    def of_tokens(self, one: Tensor, other: Tensor) -> Tensor:
        """Two tensors [...] of codes -> their distances [...]."""
        return (self._codebook[one] - self._codebook[other]).norm(dim=-1) / self._unit

    def of_laws(self, p: Tensor, law: Tensor) -> float:
        """Cost of moving p [V] to the law [V]."""
        surplus, lack = (p - law).double().clamp(min=0), (law - p).double().clamp(min=0)
        total = surplus.new_zeros(())
        for to, cost in zip(self._to, self._cost, strict=True):
            demand = torch.zeros_like(lack).scatter_add_(0, to, surplus)
            share = torch.where(demand > 0, lack / demand, 0).clamp(max=1)  # the same share for every sender
            sent = surplus * share[to]
            total += sent @ cost
            surplus, lack = surplus - sent, lack - torch.minimum(demand, lack)
        return float(total + self._anywhere(surplus, lack))

    def _anywhere(self, surplus: Tensor, lack: Tensor) -> Tensor:
        """Moves each surplus to all codes with a deficit, in proportion to it."""
        senders, receivers = surplus.nonzero()[:, 0], lack.nonzero()[:, 0]
        mass = torch.maximum(surplus.sum(), lack.sum())  # equal but for rounding
        costs = [
            surplus[some] @ torch.cdist(self._codebook[some], self._codebook[receivers]) @ lack[receivers]
            for some in senders.split(ROWS_AT_ONCE)
        ]
        return sum(costs, surplus.new_zeros(())) / (self._unit * mass.clamp(min=torch.finfo(mass.dtype).tiny))
