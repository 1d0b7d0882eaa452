"""How far apart in the codebook a token and its replacement lie: 1 is the mean distance of a code and its nearest."""

import torch
from torch import Tensor

from lantern.acceptance.neighbours import distances, nearest

RANKS = 256  # of neighbours that mass is sent to; what is left then goes anywhere
ROWS = 1024  # of a table of distances held at once


class CodeDistance:
    """Expected distance of a token drawn from p and the one committed, coupled so that they are the same as often as
    can be: what p has too much of at a code goes to its nearest codes that have too little. The plan is a witness, so
    that the Wasserstein distance W1(p, r) is at most the value."""

    def __init__(self, codebook: Tensor, ranks: int = RANKS) -> None:
        """codebook [V, C]"""
        self._codebook = codebook.double()
        near = nearest(codebook, min(ranks, len(codebook) - 1))
        far = distances(codebook, near)
        self._unit = float(far[:, 0].mean()) or 1.0  # where all codes are equal, so are all distances
        self._to, self._cost = near.T.contiguous(), (far / self._unit).T.contiguous()  # [K, V]

    def of_tokens(self, one: Tensor, other: Tensor) -> Tensor:
        """[...] of codes, twice -> [...]"""
        return (self._codebook[one] - self._codebook[other]).norm(dim=-1) / self._unit

    def of_laws(self, p: Tensor, law: Tensor) -> float:  # [V], [V]
        surplus, lack = (p - law).double().clamp(min=0), (law - p).double().clamp(min=0)
        total = surplus.new_zeros(())
        for to, cost in zip(self._to, self._cost, strict=True):
            asked = torch.zeros_like(lack).scatter_add_(0, to, surplus)
            granted = torch.where(asked > 0, lack / asked, 0).clamp(max=1)  # the same share of each sender's
            sent = surplus * granted[to]
            total += sent @ cost
            surplus, lack = surplus - sent, lack - torch.minimum(asked, lack)
        return float(total + self._anywhere(surplus, lack))

    def _anywhere(self, surplus: Tensor, lack: Tensor) -> Tensor:
        """Each sender to all receivers in proportion to what they lack."""
        senders, receivers = surplus.nonzero()[:, 0], lack.nonzero()[:, 0]
        mass = torch.maximum(surplus.sum(), lack.sum())  # equal but for rounding
        costs = [
            surplus[some] @ torch.cdist(self._codebook[some], self._codebook[receivers]) @ lack[receivers]
            for some in senders.split(ROWS)
        ]
        return sum(costs, surplus.new_zeros(())) / (self._unit * mass.clamp(min=torch.finfo(mass.dtype).tiny))
