"""LANTERN++ as released for Lumina-mGPT (code of 2502.06352): the paper's acceptance, but not its residual p~ - q. If x
absorbed anything, p is 0 at its k + 1 nearest codes; then q is subtracted if children were drawn, else x removed."""

from torch import Tensor

from lantern.acceptance.lantern_pp import LanternPP, taken_at_most
from lantern.acceptance.lantern_released import absorbs, drop_codes, law_or_uniform, nearest_and_next
from lantern.acceptance.neighbours import number_of_neighbours
from lantern.acceptance.relaxed import relaxed
from lantern.errors import check_least
from lantern.types import Site


class LanternPPReleased(LanternPP):
    """For comparison with published results; see LanternReleased for what is not reproduced."""

    name = "lantern_pp_released"

    def __init__(self, codebook: Tensor, k: float, lam: float) -> None:
        k = number_of_neighbours(codebook, k)
        check_least("acceptance", 1, lam=lam)
        self.dropped = nearest_and_next(codebook, k)
        self.neighbours, self.k, self.lam = self.dropped[:, :k], k, lam
        self.lossless = k == 0  # lam = 1 is lossy: x absorbs codes of mass 0, and its nearest codes are dropped
        self.parameters = {"k": k, "lam": lam}

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        accept = relaxed(self.relax(p, x), q, x)[0]
        rest = drop_codes(p, self.dropped[x], absorbs(p, x, self.neighbours, taken_at_most(p, x, self.lam)))
        return accept, law_or_uniform(rest.scatter(1, x[:, None], 0) if q is None else (rest - q).clamp(min=0))
