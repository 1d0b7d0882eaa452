"""Cool-SD (2601.09212): early levels are relaxed most, f_i = min(1, w_i p/q) with w_i = δ exp(-ν i - μ), i = 0 at the
first level, and the optimal residual. Under shared noise the committed law is that of one drawn child. The paper drafts
a chain; in a tree each later sibling is relaxed against the residual."""

from math import exp

from torch import Tensor

from lantern.acceptance.weighted import MOST, judge_weighted, weighted_law
from lantern.errors import LanternError, check_least
from lantern.types import Site

FARTHEST = 80  # largest |mu|: exp(±80) scales any acceptance to 0 or 1; even times MOST it is finite in float32


class CoolSD:
    """A level whose weight is 1 or less is exact."""

    name = "cool_sd"
    verification = "ratio"  # by default, as in the paper

    def __init__(self, delta: float, nu: float, mu: float) -> None:
        """delta in (0, MOST] scales all weights, nu >= 0 anneals them, mu shifts."""
        if not 0 < delta <= MOST:
            raise LanternError(f"acceptance.delta={delta} scales acceptance; give a value above 0, at most {MOST:g}")
        check_least("acceptance", 0, nu=nu)
        check_least("acceptance", -FARTHEST, FARTHEST, mu=mu)
        self.delta, self.nu, self.mu = delta, nu, mu
        self.lossless = delta * exp(-mu) <= 1
        self.parameters = {"delta": delta, "nu": nu, "mu": mu}

    def weight(self, depth: Tensor) -> Tensor:  # [M] -> [M]
        return self.delta * (-self.nu * (depth - 1) - self.mu).exp()

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
        return weighted_law(p, q, self.weight(depth.to(p.dtype)))

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return judge_weighted(p, q, x, self.weight(site.depth.to(p.dtype)))
