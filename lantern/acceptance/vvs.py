"""VVS (2511.13587), verification skipping: a round's first levels are committed as drafted; one target pass fills their
cache entries and judges the levels below. As a law: r = q at the skipped levels, r = p below. Lossy."""

import torch
from torch import Tensor

from lantern.acceptance.committed import judge_by_own_law
from lantern.errors import check_whole


class VVS:
    """Skips in every round, VVS's densest schedule; VVS can also skip every i-th round, or where paths are similar.

    VVS commits a random path of the tree, cut at the mean accepted length, and drafts on from stale features. Here the
    path is drawn from q and cut at `skip`, so that all rows of a batch skip alike, and the levels below are drafted in
    the same round. VVS judges the levels below with LANTERN (δ = 0.2), here they are judged exactly. Siblings at
    skipped levels are never judged: use tree=static_after_one.
    """

    name = "vvs"
    verification = "ratio"  # by default
    judge = judge_by_own_law

    def __init__(self, skip: int) -> None:
        check_whole("acceptance", 0, skip=skip)
        self.skip, self.lossless = skip, skip == 0
        self.parameters = {"skip": skip}

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
        return torch.where((depth <= self.skip)[:, None], q, p)
