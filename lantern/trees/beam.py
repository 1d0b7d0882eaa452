"""What EAGLE-2 (2406.16858) and the trees after it grow by: the likeliest children of a level's nodes, which of them
are expanded next, and in the end the likeliest nodes of all levels."""

import torch
from torch import Tensor

from lantern.types import PADDING, DraftTree


class Beam:
    """tokens [B, W] are expanded next, behind the expansions [B, W]; score [B, W] is the log of each node's chance."""

    def __init__(self, roots: Tensor, width: int) -> None:
        """width: children a node and nodes a level, at most."""
        self.width, self._candidates, self._expanded = width, Candidates(roots), 0
        self.tokens = roots[:, None]
        self._nodes, self.expansions = torch.zeros_like(self.tokens), torch.full_like(self.tokens, -1)
        self.score = torch.zeros_like(self.tokens, dtype=torch.float32)

    def grow(self, log_chance: Tensor, is_lost: Tensor | None = None) -> None:
        """One level from log_chance [B, W, V] of the nodes' children; is_lost: those of the best [B, W, width], best
        first, that a row goes without. What is behind a lost node is lost, too."""
        best = log_chance.topk(self.width, dim=-1)
        score = self.score[..., None] + best.values
        score = score if is_lost is None else score.masked_fill(is_lost, -torch.inf)
        first = self._candidates.add(best.indices, score, self._nodes)
        top = score.flatten(1).topk(min(self.width, score[0].numel()), dim=1)
        self.score, self._nodes = top.values, first + top.indices
        self.tokens = best.indices.flatten(1).gather(1, top.indices)
        self.expansions = self._expanded + top.indices // self.width
        self._expanded += score.shape[1]

    def narrow(self, is_dropped: Tensor) -> None:
        """is_dropped [B, W], best first: nodes whose children will be lost."""
        self.score = self.score.masked_fill(is_dropped, -torch.inf)

    def tree(self, total: int) -> DraftTree:
        """The root and the likeliest `total` nodes, best first."""
        return self._candidates.keep_best(total, self.width)


class Candidates:
    """All nodes grown so far, the root first."""

    def __init__(self, roots: Tensor) -> None:
        self.tokens, self.parents = [roots[:, None]], [torch.full_like(roots, -1)[:, None]]
        self.scores = [torch.full_like(roots, torch.inf, dtype=torch.float32)[:, None]]
        self.count = 1

    def add(self, tokens: Tensor, scores: Tensor, parents: Tensor) -> int:
        """[B, W, children] of parents [B, W]. Returns the number of the first new node."""
        first = self.count
        self.tokens.append(tokens.flatten(1))
        self.scores.append(scores.flatten(1))
        self.parents.append(parents[..., None].expand_as(tokens).flatten(1))
        self.count += self.tokens[-1].shape[1]
        return first

    def keep_best(self, total: int, width: int) -> DraftTree:
        """The root and the best `total` nodes, best first: the first n of them are the tree of n. Scores never grow
        along a path and a stable sort puts the elder first among equals, so that parents are kept, and come first.
        width: children a node was given, at most."""
        tokens, parents, scores = torch.cat(self.tokens, 1), torch.cat(self.parents, 1), torch.cat(self.scores, 1)
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : total + 1]
        place = torch.zeros_like(parents).scatter(
            1, order, torch.arange(order.shape[1], device=order.device).repeat(len(order), 1)
        )
        parent = parents.gather(1, order)
        renumbered = torch.where(parent < 0, -1, place.gather(1, parent.clamp(min=0)))
        lost = scores.gather(1, order) == -torch.inf
        return DraftTree(tokens.gather(1, order), renumbered.masked_fill(lost, PADDING), width=width)
