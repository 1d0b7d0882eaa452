"""Beam expansion of EAGLE-2 (2406.16858) and its successors: each level adds the top-k children of its nodes, the
likeliest of them form the next level, and finally the likeliest nodes of all levels are kept (reranking)."""

import torch
from torch import Tensor

from lantern.types import PADDING, DraftTree


class Beam:
    """The nodes expanded next: tokens [B, W], indices of their parents in order of expansion [B, W], and score [B, W],
    the log of each node's estimated probability."""

    def __init__(self, roots: Tensor, width: int) -> None:
        """width: children per node and nodes per level, at most."""
        self.width, self._candidates, self._expanded = width, Candidates(roots), 0
        self.tokens = roots[:, None]
        self._nodes, self.expansions = torch.zeros_like(self.tokens), torch.full_like(self.tokens, -1)
        self.score = torch.zeros_like(self.tokens, dtype=torch.float32)

    def grow(self, log_chance: Tensor, is_lost: Tensor | None = None) -> None:
        """Adds one level. log_chance [B, W, V] scores the children of each node; is_lost, broadcast to [B, W, width],
        marks ranks that a row leaves out, with all their descendants."""
        best = log_chance.topk(self.width, dim=-1)
        score = (self.score[..., None] + best.values).nan_to_num(-torch.inf, neginf=-torch.inf)  # NaN would sort first
        score = score if is_lost is None else score.masked_fill(is_lost, -torch.inf)
        first = self._candidates.add(best.indices, score, self._nodes)
        top = score.flatten(1).topk(min(self.width, score[0].numel()), dim=1)
        self.score, self._nodes = top.values, first + top.indices
        self.tokens = best.indices.flatten(1).gather(1, top.indices)
        self.expansions = self._expanded + top.indices // self.width
        self._expanded += score.shape[1]

    def narrow(self, is_dropped: Tensor) -> None:
        """is_dropped [B, W]: nodes, best first, that stay in the tree without children."""
        self.score = self.score.masked_fill(is_dropped, -torch.inf)

    def tree(self, total: int) -> DraftTree:
        """The root and the `total` likeliest nodes, best first."""
        return self._candidates.keep_best(total, self.width)


class Candidates:
    """All nodes grown so far, the root first."""

    def __init__(self, roots: Tensor) -> None:
        self.tokens, self.parents = [roots[:, None]], [torch.full_like(roots, -1)[:, None]]
        self.scores = [torch.full_like(roots, torch.inf, dtype=torch.float32)[:, None]]
        self.count = 1

    def add(self, tokens: Tensor, scores: Tensor, parents: Tensor) -> int:
        """tokens, scores [B, W, children]; parents [B, W]. Returns the index of the first new node."""
        first = self.count
        self.tokens.append(tokens.flatten(1))
        self.scores.append(scores.flatten(1))
        self.parents.append(parents[..., None].expand_as(tokens).flatten(1))
        self.count += self.tokens[-1].shape[1]
        return first

    def keep_best(self, total: int, width: int) -> DraftTree:
        """The root and the best `total` nodes, best first; the first n of them are the tree of n nodes.

        Scores never rise along a path and the sort is stable, so parents are kept and precede their children.
        width: children per node, at most.
        """
        tokens, parents, scores = torch.cat(self.tokens, 1), torch.cat(self.parents, 1), torch.cat(self.scores, 1)
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : total + 1]
        position = torch.zeros_like(parents).scatter(
            1, order, torch.arange(order.shape[1], device=order.device).repeat(len(order), 1)
        )
        parent = parents.gather(1, order)
        renumbered = torch.where(parent < 0, -1, position.gather(1, parent.clamp(min=0)))
        lost = scores.gather(1, order) == -torch.inf
        return DraftTree(tokens.gather(1, order), renumbered.masked_fill(lost, PADDING), width=width)
