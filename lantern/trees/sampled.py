"""A dynamic tree of drawn nodes for ratio verification, after EAGLE-2 (2406.16858): a node gets one more child while
the chance of reaching it times that child's own is worth its price. Unlike EAGLE-2's, the tree is grown and never
pruned: its shape follows from laws and from tokens that stand already, not from the one to be judged."""

from collections.abc import Callable

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.types import PADDING, DraftTree, Proposals

# How often a drawn child is accepted once its elder siblings are refused: the first one, and how the others fall with
# their rank and rise with q's highest probability. Read off 5,399 children judged on the embedded model, where the
# first one's chance was 0.69 to 0.74 whatever the depth and the entropy of q
FIRST, LATER, FALL, PEAK = 0.72, 0.25, 0.8, 0.4


class SampledTree:
    def __init__(self, total: int, depth: int, width: int, beam: int, price: float, name: str = "sampled") -> None:
        """A node is drawn where its chance of being accepted is estimated at `price` or more; the other numbers are
        limits: total draft nodes, depth levels, width children a node, beam nodes expanded a level."""
        if min(total, depth, width, beam) < 1 or not 0 < price <= FIRST:
            raise LanternError(
                f"tree.total={total}, depth={depth}, width={width}, beam={beam}, price={price}: give 1 or more each, "
                f"and a price above 0, at most {FIRST}"
            )
        self.name, self.kind, self.total, self.depth, self.width = name, "sampled", total, depth, width
        self.beam, self.price = beam, price
        self.num_nodes, self.num_expanded = total + 1, 1 + (depth - 1) * beam

    def grow(self, roots: Tensor, room: Tensor, expand: Callable, proposals: Proposals) -> DraftTree:
        """roots [B], room [B] tokens left -> DraftTree [B, N], N of the largest row; see StaticTree.grow for expand."""
        levels, room = min(self.depth, int(room.max()) - 1), room.to(roots.device)
        grown = _Grown(roots, self.total, self.width)
        level = _Level.root(roots)
        for depth in range(levels):
            log_q = expand(level.tokens, level.expansions, depth)
            drawn = proposals.drawn(log_q, level.nodes, depth).topk(self.width, dim=-1)  # [B, W, width]
            worth = self._worth(log_q, level.reach)
            worth = worth.masked_fill((depth + 1 >= room)[:, None, None], -torch.inf)
            if proposals.keeps_law:
                grown.keep_laws(level.nodes, log_q)
            level = grown.add(drawn.indices, worth, level, self.price, self.beam)
            if not bool((level.reach > 0).any()):  # waits for the device, which a drafter forward would cost more
                break
        return grown.tree()

    def _worth(self, log_q: Tensor, reach: Tensor) -> Tensor:
        """[B, W, width] estimated probability that each child is accepted, falling with its rank: a function of the law
        at its parent and of the path there, and not of the child."""
        q_max = (log_q.amax(-1) - log_q.logsumexp(-1)).exp()[..., None]  # [B, W, 1]
        rank = torch.arange(self.width, device=reach.device)
        chance = torch.where(rank == 0, FIRST, (LATER + PEAK * q_max) * FALL ** (rank - 1)).clamp(max=FIRST)
        refused = (1 - chance).cumprod(-1) / (1 - chance)
        worth = (reach[..., None] * refused * chance).cummin(-1).values
        support = (log_q > -torch.inf).sum(-1, keepdim=True)
        return worth.masked_fill(rank >= support, -torch.inf)  # q has no more codes to draw


class _Level:
    """The nodes expanded next."""

    def __init__(self, tokens: Tensor, expansions: Tensor, nodes: Tensor, reach: Tensor, first: int) -> None:
        self.tokens, self.nodes, self.reach = tokens, nodes, reach  # [B, W]
        self.expansions = expansions  # [B, W] their parents, in order of expansion
        self.first = first  # the first one's own number in that order

    @classmethod
    def root(cls, roots: Tensor) -> "_Level":
        here = roots[:, None]
        return cls(here, torch.full_like(here, -1), torch.zeros_like(here), torch.ones_like(here).float(), 0)


class _Grown:
    """The tree so far. A row numbers its own nodes without gaps, so that its noise is the same in every batch; what is
    not drawn goes to the column behind the last."""

    def __init__(self, roots: Tensor, total: int, width: int) -> None:
        self.total, self.width, self.laws = total, width, None
        self.tokens = roots.new_zeros(len(roots), total + 2)
        self.parents = torch.full_like(self.tokens, PADDING)
        self.tokens[:, 0], self.parents[:, 0] = roots, -1
        self.count = torch.ones_like(roots)[:, None]

    def keep_laws(self, nodes: Tensor, log_q: Tensor) -> None:
        if self.laws is None:
            self.laws = log_q.new_zeros(len(nodes), self.total + 2, log_q.shape[-1])
        self.laws.scatter_(1, nodes[..., None].expand_as(log_q), log_q.softmax(-1))

    def add(self, tokens: Tensor, worth: Tensor, level: _Level, price: float, beam: int) -> _Level:
        """tokens, worth [B, W, width]: draws the children that are worth their price while there is space, and returns
        those worth expanding."""
        width, worth = worth.shape[-1], worth.flatten(1)
        order = worth.sort(dim=1, descending=True, stable=True).indices
        place = torch.empty_like(order).scatter_(
            1, order, torch.arange(order.shape[1], device=order.device)[None].expand_as(order)
        )
        kept = (worth >= price) & (place < self.total + 1 - self.count)  # of siblings the eldest: no gaps
        number = torch.where(kept, self.count + kept.cumsum(1) - 1, self.total + 1)
        self.tokens.scatter_(1, number, tokens.flatten(1))
        self.parents.scatter_(1, number, level.nodes.repeat_interleave(width, 1).masked_fill(~kept, PADDING))
        self.count = self.count + kept.sum(1, keepdim=True)
        reach, best = worth.masked_fill(~kept | (worth * FIRST < price), 0).topk(min(beam, worth.shape[1]), dim=1)
        expansions = level.first + best // width
        return _Level(
            tokens.flatten(1).gather(1, best),
            expansions,
            number.gather(1, best),
            reach,
            level.first + level.nodes.shape[1],
        )

    def tree(self) -> DraftTree:
        size = int(self.count.max())
        laws = None if self.laws is None else self.laws[:, :size]
        return DraftTree(self.tokens[:, :size], self.parents[:, :size], laws, width=self.width)
