"""LANTERN++ (Park et al., 2502.06352): as LANTERN, but a token's probability is at most multiplied by λ: it takes up to
(λ - 1) p(x) from its neighbours. λ and LANTERN's δ are two settings here, one flag in the released code."""

from torch import Tensor

from lantern.acceptance.neighbours import nearest, number_of_neighbours
from lantern.acceptance.relaxed import absorb, judge_by_relaxed_law
from lantern.errors import check_least


class LanternPP:
    """p~(x) <= lam p(x) for the judged x."""

    name = "lantern_pp"
    verification = "ratio"  # by default, as in the paper
    judge = judge_by_relaxed_law

    def __init__(self, codebook: Tensor, k: float, lam: float) -> None:
        """codebook [V, C]; k neighbours, 0 <= k < V, or a share of V below 1; lam >= 1."""
        k = number_of_neighbours(codebook, k)
        check_least("acceptance", 1, lam=lam)
        self.neighbours, self.k, self.lam = nearest(codebook, k), k, lam
        self.lossless = k == 0 or lam == 1
        self.parameters = {"k": k, "lam": lam}

    def relax(self, p: Tensor, x: Tensor) -> Tensor:
        return absorb(p, x, self.neighbours, taken_at_most(p, x, self.lam))


def taken_at_most(p: Tensor, x: Tensor, lam: float) -> Tensor:  # [B, V], [B] -> [B, 1]
    """The mass that x takes from its neighbours at most."""
    return (lam - 1) * p.gather(1, x[:, None])
