"""Total-variation budget: the committed law is r = (1 - w) p + w q, within ε of p at every position. With one drawn
child it accepts with probability 1 - TV(p, q) + ε, and no rule within ε accepts more often: the Pareto front of Yin et
al. (2411.00841, theorem 5). No such claim for several children."""

import torch
from torch import Tensor

from lantern.acceptance.committed import judge_by_own_law
from lantern.acceptance.relaxed import normalise
from lantern.errors import check_least


class TvBudget:
    """TV(p, r) <= eps given the prefix; exact at eps = 0."""

    name = "tv_budget"
    verification = "ratio"  # by default
    judge = judge_by_own_law

    def __init__(self, eps: float) -> None:
        """eps in [0, 1]."""
        check_least("acceptance", 0, 1, eps=eps)
        self.eps, self.lossless = eps, eps == 0
        self.parameters = {"eps": eps}

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
        distance = (p - q).clamp(min=0).sum(-1, keepdim=True)
        weight = (self.eps / distance.clamp(min=torch.finfo(p.dtype).tiny)).clamp(max=1)
        return torch.where(distance > 0, normalise((1 - weight) * p + weight * q, p), p)
