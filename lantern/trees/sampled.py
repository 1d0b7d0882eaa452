"""A dynamic tree of sampled children for ratio verification, after EAGLE-2 (2406.16858). A child is drawn if the
estimated probability of accepting its whole path reaches a threshold. Unlike EAGLE-2's tree it is never pruned: if the
shape depended on a token still to be judged, and not only on its ancestors, the output would be biased."""

from typing import NamedTuple

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.trees.beam import BeamTree
from lantern.trees.static import drop_negligible
from lantern.types import PADDING, DraftTree, Expand, Proposals

# Acceptance probability of a drawn child whose earlier siblings were rejected: FIRST for the first child, else
# (LATER + PEAK max q) FALL^(rank - 1). Fitted to 5,399 judged children of the embedded model, where the first child's
# was 0.69 to 0.74 at every depth and entropy of q
FIRST, LATER, FALL, PEAK = 0.72, 0.25, 0.8, 0.4


class SampledTree(BeamTree):
    """A TreePolicy that decides how many children to draw before drawing them."""

    kind = "sampled"

    def __init__(self, total: int, depth: int, width: int, beam: int, price: float, name: str = "sampled") -> None:
        """price: the least estimated acceptance probability of a node."""
        super().__init__(total, depth, width, name, beam)
        if not 0 < price <= FIRST:
            raise LanternError(f"tree.price={price} is no such probability; give a value above 0, at most {FIRST}")
        self.price = price

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: Proposals) -> DraftTree:
        levels, tokens_left = min(self.depth, int(tokens_left.max()) - 1), tokens_left.to(roots.device)
        growing = _GrowingTree(roots, self.total, self.width)
        here = roots[:, None]
        level = _Level(here, torch.full_like(here, -1), torch.zeros_like(here), torch.ones_like(here).float(), 0)
        for depth in range(levels):
            log_q = expand(level.tokens, level.expansions, depth)
            log_q = drop_negligible(log_q) if proposals.needs_draft_law else log_q
            drawn = proposals.sample_scores(log_q, level.nodes, depth).topk(self.width, dim=-1)  # [B, W, width]
            chance = self._acceptance(log_q, level.reach)
            chance = chance.masked_fill((depth + 1 >= tokens_left)[:, None, None], -torch.inf)
            if proposals.needs_draft_law:
                growing.keep_laws(level.nodes, log_q)
            level = growing.add(drawn.indices, chance, level, self.price, self.beam)
            if not bool((level.reach > 0).any()):  # synchronises with the device; cheaper than a drafter forward
                break
        return growing.tree()

    def _acceptance(self, log_q: Tensor, reach: Tensor) -> Tensor:
        """log_q [B, W, V], reach [B, W] -> [B, W, width] estimated probability that each child is reached and accepted,
        non-increasing in its rank; a function of q and of the path to the parent, not of the child's token."""
        q_max = (log_q.amax(-1) - log_q.logsumexp(-1)).exp()[..., None]  # [B, W, 1]
        rank = torch.arange(self.width, device=reach.device)
        accept = torch.where(rank == 0, FIRST, (LATER + PEAK * q_max) * FALL ** (rank - 1)).clamp(max=FIRST)
        siblings_rejected = (1 - accept).cumprod(-1) / (1 - accept)
        chance = (reach[..., None] * siblings_rejected * accept).cummin(-1).values
        support = (log_q > -torch.inf).sum(-1, keepdim=True)
        return chance.masked_fill(rank >= support, -torch.inf)  # no further codes to draw


class _Level(NamedTuple):
    """The nodes expanded next, W per image."""

    tokens: Tensor  # [B, W]
    expansions: Tensor  # [B, W] indices of their parents in order of expansion
    nodes: Tensor  # [B, W]
    reach: Tensor  # [B, W]
    first: int  # index of the first of these nodes in that order


class _GrowingTree:
    """The tree so far. Each row numbers its nodes without gaps, so that its noise does not depend on the batch; entries
    that are not drawn are scattered into a last, discarded column."""

    def __init__(self, roots: Tensor, total: int, width: int) -> None:
        self.total, self.width = total, width
        self.laws: Tensor | None = None
        self.tokens = roots.new_zeros(len(roots), total + 2)
        self.parents = torch.full_like(self.tokens, PADDING)
        self.tokens[:, 0], self.parents[:, 0] = roots, -1
        self.count = torch.ones_like(roots)[:, None]

    def keep_laws(self, nodes: Tensor, log_q: Tensor) -> None:
        """Stores q at the expanded nodes [B, W], from log_q [B, W, V]."""
        if self.laws is None:
            self.laws = log_q.new_zeros(len(nodes), self.total + 2, log_q.shape[-1])
        self.laws.scatter_(1, nodes[..., None].expand_as(log_q), log_q.softmax(-1))

    def add(self, tokens: Tensor, chance: Tensor, level: _Level, price: float, beam: int) -> _Level:
        """tokens, chance [B, W, width]: adds the children with chance >= price, likeliest first, up to `total` nodes;
        returns the likeliest `beam` of them whose first child would be added, too."""
        width, chance = chance.shape[-1], chance.flatten(1)
        order = chance.sort(dim=1, descending=True, stable=True).indices
        places = torch.arange(order.shape[1], device=order.device).expand_as(order)
        position = torch.empty_like(order).scatter_(1, order, places)
        kept = (chance >= price) & (position < self.total + 1 - self.count)  # stable sort: earlier siblings first
        number = torch.where(kept, self.count + kept.cumsum(1) - 1, self.total + 1)
        self.tokens.scatter_(1, number, tokens.flatten(1))
        self.parents.scatter_(1, number, level.nodes.repeat_interleave(width, 1).masked_fill(~kept, PADDING))
        self.count = self.count + kept.sum(1, keepdim=True)
        reach, best = chance.masked_fill(~kept | (chance * FIRST < price), 0).topk(min(beam, chance.shape[1]), dim=1)
        expansions, first = level.first + best // width, level.first + level.nodes.shape[1]
        return _Level(tokens.flatten(1).gather(1, best), expansions, number.gather(1, best), reach, first)

    def tree(self) -> DraftTree:
        """[B, N], N of the largest row."""
        size = int(self.count.max())
        laws = None if self.laws is None else self.laws[:, :size]
        return DraftTree(self.tokens[:, :size], self.parents[:, :size], laws, width=self.width)
