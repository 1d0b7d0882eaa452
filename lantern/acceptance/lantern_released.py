"""LANTERN as released for LlamaGen and Anole (code of 2410.03355): the paper's acceptance, but not its residual p~ - q.
If x absorbed anything, its k + 1 nearest codes are set to 0: in q if children were drawn, in p if they were chosen."""

import torch
from torch import Tensor

from lantern.acceptance.lantern import Lantern
from lantern.acceptance.neighbours import nearest, number_of_neighbours
from lantern.acceptance.relaxed import normalise, relaxed
from lantern.errors import check_least
from lantern.types import Site


class LanternReleased(Lantern):
    """For comparison with published results. If x absorbed anything, its k + 1 nearest codes B_{k+1} are dropped; an
    empty residual becomes uniform. Not reproduced: they find neighbours in the raw codebook, we in the decoder's."""

    name = "lantern_released"

    def __init__(self, codebook: Tensor, k: float, delta: float) -> None:
        k = number_of_neighbours(codebook, k)
        check_least("acceptance", 0, 1, delta=delta)
        self.dropped = nearest_and_next(codebook, k)
        self.neighbours, self.k, self.delta = self.dropped[:, :k], k, delta
        self.lossless = k == 0  # delta = 0 is lossy: x absorbs codes of mass 0, and its nearest codes are dropped
        self.parameters = {"k": k, "delta": delta}

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        accept = relaxed(self.relax(p, x), q, x)[0]
        does_absorb = absorbs(p, x, self.neighbours, self.delta)
        if q is None:
            return accept, law_or_uniform(drop_codes(p, self.dropped[x], does_absorb).scatter(1, x[:, None], 0))
        return accept, law_or_uniform((p - drop_codes(q, self.dropped[x], does_absorb)).clamp(min=0))


def nearest_and_next(codebook: Tensor, k: int) -> Tensor:
    """[V, min(k + 1, V - 1)] neighbours."""
    return nearest(codebook, k + 1 if 0 <= k < len(codebook) - 1 else k)


def absorbs(p: Tensor, x: Tensor, neighbours: Tensor, budget: Tensor | float) -> Tensor:
    """[B, 1]: whether the nearest code's mass is within the budget, so that x takes it."""
    return (p.gather(1, neighbours[x][:, :1]) <= budget).any(-1, keepdim=True)


def drop_codes(law: Tensor, dropped: Tensor, is_dropped: Tensor) -> Tensor:
    """law [B, V] with the codes dropped [B, K] at 0 in the rows of is_dropped [B, 1]."""
    return torch.where(is_dropped, law.scatter(1, dropped, 0), law)


def law_or_uniform(rest: Tensor) -> Tensor:
    """[B, V] masses -> laws; uniform where no mass is left."""
    return normalise(rest, 1 / rest.shape[-1])
