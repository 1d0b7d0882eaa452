"""EAGLE-2's beam (2406.16858) with a width of each row's own: the likeliest children of a level's nodes, and which of
them are expanded next."""

import torch
from torch import Tensor

from lantern.trees.eagle2 import Candidates
from lantern.types import DraftTree


class Beam:
    """tokens [B, W] are expanded next, behind the expansions [B, W]; score is the log of each node's chance."""

    def __init__(self, roots: Tensor, width: int) -> None:
        """width: of the widest row."""
        self._candidates, self._expanded = Candidates(roots), 0
        self._ranks = torch.arange(width, device=roots.device)
        self.tokens = roots[:, None]
        self._nodes, self.expansions = torch.zeros_like(self.tokens), torch.full_like(self.tokens, -1)
        self.score = torch.zeros_like(self.tokens, dtype=torch.float32)

    def grow(self, log_chance: Tensor, widths: Tensor) -> None:
        """One level from log_chance [B, W, V] of the nodes' children; widths [B]: a node's children at most, and nodes
        that are expanded next. A row of width 0 has ended."""
        best = log_chance.topk(len(self._ranks), dim=-1)
        score = self.score[..., None] + best.values
        score = score.masked_fill(self._ranks >= widths[:, None, None], -torch.inf)
        first = self._candidates.add(best.indices, score, self._nodes)
        top = score.flatten(1).topk(min(len(self._ranks), score[0].numel()), dim=1)
        beyond = self._ranks[: top.values.shape[1]] >= widths[:, None]
        self.score, self._nodes = top.values.masked_fill(beyond, -torch.inf), first + top.indices
        self.tokens = best.indices.flatten(1).gather(1, top.indices)
        self.expansions = self._expanded + top.indices // len(self._ranks)
        self._expanded += score.shape[1]

    def tree(self, total: int) -> DraftTree:
        """The root and the likeliest `total` nodes, best first."""
        return self._candidates.keep_best(total)
