"""VVS (2511.13587), verification skipped: a round's first levels are committed as drafted, so that one target pass
fills their cache entries and judges what was drafted behind them. As a law: r = q there, r = p below. Lossy."""

import torch
from torch import Tensor

from lantern.acceptance.committed import judged_against
from lantern.errors import LanternError
from lantern.types import Site


class VVS:
    """A skip before every verification, VVS's densest schedule; theirs can also skip every i-th round, or where paths
    are alike. Theirs takes a path of the tree at random, cuts it at the mean accepted length, and drafts the next from
    stale features; here the path is drawn from q and cut at `skip`, so that rows stay side by side, and what stands
    behind it is drafted in the same round. A skipped level's siblings are never judged: tree=static_after_one."""

    name = "vvs"
    verification = "ratio"  # by default

    def __init__(self, skip: int) -> None:
        """skip >= 0 levels. Raises LanternError else."""
        if skip < 0:
            raise LanternError(f"acceptance.skip={skip} levels are committed unjudged; give 0 or more")
        self.skip, self.lossless = skip, skip == 0
        self.parameters = {"skip": skip}

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
        return torch.where((depth <= self.skip)[:, None], q, p)

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return judged_against(self, p, q, x, site)
