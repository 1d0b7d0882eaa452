"""Beam expansion of EAGLE-2 (2406.16858) and its successors: each level adds the top-k children of its nodes, the
likeliest of them form the next level, and finally the likeliest nodes of all levels are kept (reranking)."""

import torch
from torch import Tensor

from lantern.errors import LanternError, check_whole
from lantern.runtime.memory import check_nodes
from lantern.types import PADDING, DraftTree


class BeamTree:
    """What TreePolicies that grow level by level have in common: their sizes."""

    kind: str

    def __init__(self, total: int, depth: int, width: int, name: str) -> None:
        """total: draft nodes kept; depth: most levels; width: children per node and nodes expanded a level."""
        sizes = {"total": total, "depth": depth, "width": width}
        told = "tree." + ", ".join(f"{size}={value}" for size, value in sizes.items())
        check_whole("tree", 1, **sizes)
        check_nodes(max(total, depth, width), told)
        self.name, self.total, self.depth, self.width = name, total, depth, width
        self.num_nodes, self.num_expanded = total + 1, 1 + (depth - 1) * width

    def check_room(self) -> None:
        """LanternError for more nodes than are grown."""
        most = self.width + (self.depth - 1) * self.width**2
        if self.total > most:
            sizes = f"depth={self.depth}, width={self.width}"
            raise LanternError(f"tree.total={self.total} is more than the {most} nodes that {sizes} grow")


class Beam:
    """The nodes to expand next: `tokens` [B, W], `expansions` [B, W], their parents' indices in the order of expansion,
    and `score` [B, W], the log of each node's estimated probability."""

    def __init__(self, roots: Tensor, width: int) -> None:
        """width: children per node and nodes per level, at most."""
        self.width, self._expanded, self.tokens = width, 0, roots[:, None]
        self._nodes, self.expansions = torch.zeros_like(self.tokens), torch.full_like(self.tokens, -1)
        self.score = torch.zeros_like(self.tokens, dtype=torch.float32)
        root = self.tokens, self.expansions, torch.full_like(self.score, torch.inf)
        self._grown = [root]  # all nodes so far, level by level: tokens, parents and scores, each [B, n]

    def grow(self, log_chance: Tensor, is_lost: Tensor | None = None) -> None:
        """Adds one level. log_chance [B, W, V] scores the children of each node; is_lost, broadcast to [B, W, width],
        marks ranks that a row leaves out, with all their descendants."""
        best = log_chance.topk(self.width, dim=-1)
        score = (self.score[..., None] + best.values).nan_to_num(-torch.inf, neginf=-torch.inf)  # NaN would sort first
        score = score if is_lost is None else score.masked_fill(is_lost, -torch.inf)
        first = sum(tokens.shape[1] for tokens, _, _ in self._grown)
        parents = self._nodes[..., None].expand_as(best.indices)
        self._grown.append((best.indices.flatten(1), parents.flatten(1), score.flatten(1)))
        top = score.flatten(1).topk(min(self.width, score[0].numel()), dim=1)
        self.score, self._nodes = top.values, first + top.indices
        self.tokens = best.indices.flatten(1).gather(1, top.indices)
        self.expansions = self._expanded + top.indices // self.width
        self._expanded += score.shape[1]

    def tree(self, total: int) -> DraftTree:
        """The root and the `total` likeliest nodes, best first; the first n of them are the tree of n nodes.

        Scores never rise along a path and the sort is stable, so parents are kept and precede their children.
        """
        tokens, parents, scores = (torch.cat(part, 1) for part in zip(*self._grown, strict=True))
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : total + 1]
        places = torch.arange(order.shape[1], device=order.device).expand_as(order)
        position = torch.zeros_like(parents).scatter(1, order, places)
        parent = parents.gather(1, order)
        renumbered = torch.where(parent < 0, -1, position.gather(1, parent.clamp(min=0)))
        lost = scores.gather(1, order) == -torch.inf
        return DraftTree(tokens.gather(1, order), renumbered.masked_fill(lost, PADDING), width=self.width)
