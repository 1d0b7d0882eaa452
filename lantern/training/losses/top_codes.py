"""HASS's harmonised objective (2408.15766, section 3.1): cross-entropy over the target's likeliest codes."""

from torch import Tensor

from lantern.training.losses.sites import Sites


class TopCodes:
    """-sum of p(x) log q(x) over the `count` likeliest codes of p."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, sites: Sites) -> Tensor:
        best = sites.p.topk(min(self.count, sites.p.shape[-1]))
        return -(best.values * sites.log_q.gather(-1, best.indices)).sum(-1)
