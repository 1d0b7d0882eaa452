"""LANTERN (Jang et al., 2410.03355, algorithm 1): a token x takes the probability of its nearest codes, at most k codes
and δ in all. It is judged by p~(x) = p(A(x)), A(x) being x and these codes; the residual is norm(max(p~ - q, 0)).
Follows the paper, not its released code."""

from torch import Tensor

from lantern.acceptance.neighbours import nearest, number_of_neighbours
from lantern.acceptance.relaxed import absorb, judge_by_relaxed_law
from lantern.errors import check_least


class Lantern:
    """p~(x) - p(x) <= delta for the judged x. delta bounds this one move, not the output law's total variation. The
    paper judges one token per position; after rejected siblings, p is their normalised residual, as in its code."""

    name = "lantern"
    verification = "ratio"  # by default, as in the paper
    judge = judge_by_relaxed_law

    def __init__(self, codebook: Tensor, k: float, delta: float) -> None:
        """codebook [V, C]; k neighbours, 0 <= k < V, or a share of V below 1; delta in [0, 1]."""
        k = number_of_neighbours(codebook, k)
        check_least("acceptance", 0, 1, delta=delta)
        self.neighbours, self.k, self.delta = nearest(codebook, k), k, delta
        self.lossless = k == 0 or delta == 0
        self.parameters = {"k": k, "delta": delta}

    def relax(self, p: Tensor, x: Tensor) -> Tensor:
        return absorb(p, x, self.neighbours, budget=self.delta)
