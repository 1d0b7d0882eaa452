"""Entropy-aware acceptance (2510.09012) is relaxed where the target's entropy is high. Their code omits the rule; this
formula is ours, modelled on their temperature: f = min(1, w p/q), w = 1 + β (1 - exp(-H/α)), H in nats. The paper
judges a window of SJD (method=entropy_sjd)."""

from torch import Tensor

from lantern.acceptance.weighted import MOST, judge_weighted, weighted_law
from lantern.errors import check_least
from lantern.sampling import entropy
from lantern.types import Site


class EntropyAware:
    """The weight is 1 (exact) at H = 0 and rises towards 1 + beta with the entropy."""

    name = "entropy_aware"
    verification = "ratio"  # by default, as in the paper

    def __init__(self, alpha: float, beta: float) -> None:
        """alpha >= 1 / MOST, the entropy at which 63 % of the relaxation is reached; beta in [0, MOST]."""
        check_least("acceptance", 1 / MOST, alpha=alpha)
        check_least("acceptance", 0, MOST, beta=beta)
        self.alpha, self.beta, self.lossless = alpha, beta, beta == 0
        self.parameters = {"alpha": alpha, "beta": beta}

    def weight(self, law: Tensor) -> Tensor:  # [M, V] -> [M]
        return 1 + self.beta * (1 - (-entropy(law) / self.alpha).exp())

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
        return weighted_law(p, q, self.weight(p))

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return judge_weighted(p, q, x, self.weight(site.law))
