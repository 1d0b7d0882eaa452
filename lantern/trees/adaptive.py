"""Adaptive trees (ADT-Tree, 2512.21857) with a fixed number of nodes. A tree is deep and narrow if the rounds that
committed the positions to its left and above accepted many tokens, else shallow and wide. EAGLE-2's beam grows it; the
depth moves by bisection. Which position above counts is our reading of the paper."""

import torch
from torch import Tensor

from lantern.errors import LanternError, check_whole
from lantern.trees.beam import Beam, BeamTree
from lantern.types import DraftTree, Expand, Proposals, Verdict


class AdaptiveTree(BeamTree):
    """A StatefulTreePolicy: at each image position it stores the depth recommended by the round that committed this
    position. Images are independent of each other."""

    kind = "adaptive"

    def __init__(self, total: int, depth: int, width: int, start: int, name: str = "adaptive") -> None:
        """start: depth of an image's first tree."""
        super().__init__(total, depth, width, name)
        check_whole("tree", 1, start=start)
        if start > depth:
            raise LanternError(f"tree.start={start} is deeper than depth={depth}; give {depth} at most")
        self.start = start

    def allocate(self, batch_size: int, grid: tuple[int, int], device: torch.device) -> None:
        self._columns, self._positions = grid[1], torch.arange(grid[0] * grid[1], device=device)
        self._depths = self._positions.new_full((batch_size, len(self._positions)), self.start)

    def begin(self, rows: Tensor) -> None:
        self._depths[rows] = self.start

    def keep(self, rows: Tensor) -> None:
        self._depths = self._depths[rows]

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: Proposals) -> DraftTree:
        tokens_left = tokens_left.to(roots.device)
        self._root = len(self._positions) - tokens_left - 1  # [B]
        self._grown = torch.minimum(self._recommended(), tokens_left - 1)
        widths = (-(-self.total // self._grown.clamp(min=1))).clamp(max=self.width)
        beam, ranks = Beam(roots, self.width), torch.arange(self.width, device=roots.device)
        for depth in range(int(self._grown.max())):
            log_chance = proposals.topk_scores(expand(beam.tokens, beam.expansions, depth), depth)
            is_beyond = ranks >= (widths * (depth < self._grown))[:, None]  # [B, width]
            beam.grow(log_chance, is_beyond[:, None])
            childless = is_beyond[:, : beam.tokens.shape[1]]  # which stay in the tree
            beam.score = beam.score.masked_fill(childless, -torch.inf)
        return beam.tree(self.total)

    def _recommended(self) -> Tensor:
        """[B] mean, rounded up, of the depths stored at the root and at the position above the next token."""
        left = self._depths.gather(1, self._root[:, None])[:, 0]
        position = self._root + 1 - self._columns
        above = self._depths.gather(1, position.clamp(min=0)[:, None])[:, 0]
        return (left + torch.where(position >= 0, above, left) + 1) // 2

    def observe(self, verdict: Verdict) -> None:
        """Recommends the midpoint, rounded up, between the grown depth and a goal. The goal is the maximum depth if the
        tree was accepted to its full depth, else one level more than was accepted."""
        accepted, grown = verdict.accepted, self._grown
        goal = torch.where(accepted >= grown, self.depth, accepted + 1)
        recommended = ((grown + goal + 1) // 2).clamp(max=self.depth)
        fresh = (self._positions > self._root[:, None]) & (self._positions <= (self._root + accepted + 1)[:, None])
        self._depths = torch.where(fresh, recommended[:, None], self._depths)
