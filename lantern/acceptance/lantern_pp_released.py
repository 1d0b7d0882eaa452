"""LANTERN++ as released for Lumina-mGPT (code of 2502.06352): its acceptance, and a residual that differs from the
paper's p~ - q: where x absorbed anything, the k + 1 nearest codes leave p, from which q is still subtracted where
children were drawn."""

from torch import Tensor

from lantern.acceptance.lantern_pp import check_lam, taken_at_most
from lantern.acceptance.lantern_released import absorbs, drop_codes, law_or_uniform, nearest_and_next
from lantern.acceptance.neighbours import number_of_neighbours
from lantern.acceptance.relaxed import absorb, relaxed
from lantern.types import Site


class LanternPPReleased:
    """For comparison with published results; see LanternReleased for what is not reproduced."""

    name = "lantern_pp_released"
    verification = "ratio"

    def __init__(self, codebook: Tensor, k: float, lam: float) -> None:
        """codebook [V, C]; k neighbours, 0 <= k < V, or a share of V below 1; lam >= 1."""
        k = number_of_neighbours(codebook, k)
        check_lam(lam)
        self.dropped = nearest_and_next(codebook, k)
        self.neighbours, self.k, self.lam = self.dropped[:, :k], k, lam
        self.lossless = k == 0  # not so at lam = 1: codes without mass are absorbed, and their neighbours dropped
        self.parameters = {"k": k, "lam": lam}

    def relax(self, p: Tensor, x: Tensor) -> Tensor:
        return absorb(p, x, self.neighbours, taken_at_most(p, x, self.lam))

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        accept = relaxed(self.relax(p, x), q, x)[0]
        rest = drop_codes(p, self.dropped[x], absorbs(p, x, self.neighbours, taken_at_most(p, x, self.lam)))
        return accept, law_or_uniform(rest.scatter(1, x[:, None], 0) if q is None else (rest - q).clamp(min=0))
