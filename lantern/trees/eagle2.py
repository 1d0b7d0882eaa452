"""EAGLE-2's dynamic tree (2406.16858, section 4): a beam of chosen children grows by its most likely nodes, then the
most likely of all levels are kept. Ours: under shared noise "likely" is the estimated probability of being picked."""

from collections.abc import Callable

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.types import PADDING, DraftTree


class Eagle2Tree:
    def __init__(self, total: int, depth: int, width: int, name: str = "eagle2") -> None:
        """total draft nodes kept, depth levels, width children a node and nodes a beam."""
        if min(total, depth, width) < 1 or total < depth:
            raise LanternError(f"tree.total={total}, depth={depth}, width={width}: give 1 or more each, total >= depth")
        if total > width + (depth - 1) * width**2:
            most = width + (depth - 1) * width**2
            raise LanternError(
                f"tree.total={total} is more than the {most} nodes that depth={depth}, width={width} grow"
            )
        self.name, self.kind, self.total, self.depth, self.width = name, "eagle2", total, depth, width
        self.num_nodes, self.num_expanded = total + 1, 1 + (depth - 1) * width

    def grow(self, roots: Tensor, room: Tensor, expand: Callable, proposals) -> DraftTree:
        """roots [B], room [B] tokens left -> DraftTree [B, total + 1]; see StaticTree.grow for expand."""
        batch, levels = len(roots), min(self.depth, int(room.max()) - 1)
        room = room.to(roots.device)
        beam_tokens, beam = roots[:, None], torch.zeros_like(roots)[:, None]  # beam: node numbers among all candidates
        beam_score = torch.zeros(batch, 1, device=roots.device)
        expansions, expanded = torch.full_like(beam, -1), 0
        candidates = Candidates(roots)
        for depth in range(levels):
            best = proposals.chosen(expand(beam_tokens, expansions, depth), depth).topk(
                self.width, dim=-1
            )  # [B, W, width]
            score = beam_score[..., None] + best.values
            score = score.masked_fill((depth + 1 >= room)[:, None, None], -torch.inf)
            first = candidates.add(best.indices, score, beam)
            top = score.flatten(1).topk(min(self.width, score[0].numel()), dim=1)
            beam, beam_score = first + top.indices, top.values
            beam_tokens = best.indices.flatten(1).gather(1, top.indices)
            expansions = expanded + top.indices // best.indices.shape[-1]
            expanded += score.shape[1]
        return candidates.keep_best(self.total)


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

    def keep_best(self, total: int) -> DraftTree:
        """The root and the best `total` nodes, best first: the first n of them are the tree of n. Scores never grow
        along a path and a stable sort puts the elder first among equals, so that parents are kept, and come first."""
        tokens, parents, scores = torch.cat(self.tokens, 1), torch.cat(self.parents, 1), torch.cat(self.scores, 1)
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : total + 1]
        place = torch.zeros_like(parents).scatter(
            1, order, torch.arange(order.shape[1], device=order.device).repeat(len(order), 1)
        )
        parent = parents.gather(1, order)
        renumbered = torch.where(parent < 0, -1, place.gather(1, parent.clamp(min=0)))
        lost = scores.gather(1, order) == -torch.inf
        return DraftTree(tokens.gather(1, order), renumbered.masked_fill(lost, PADDING))
