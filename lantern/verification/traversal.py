"""Traversal verification (2505.12398): block verification for trees. Judges a tree from its leaves to the root, each
node jointly with its path, so that a likely continuation can save an unlikely token. After a rejected subtree, the
residual p and q judge the next sibling. Lossless; on a chain it is block verification."""

import torch
from torch import Tensor

from lantern.acceptance.committed import committed_laws, point_mass
from lantern.acceptance.relaxed import normalise
from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Verdict
from lantern.verification.block import BlockProposals
from lantern.verification.ratio import order_of_children, without


class Traversal:
    """Serves the exact rule and rules with a committed law of their own, on every tree."""

    name = "traversal"
    head_s, proposals = 0.0, BlockProposals

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        """probs p [B, N, V]. Each iteration judges one node of every row, and synchronises with the device."""
        walk = _Walk(tree, probs, rule)
        while bool((judged := walk.descend()).any()):
            accepted = noise.accepts(walk.here(walk.weight), torch.where(judged, walk.node, 0))
            walk.is_open &= judged & ~accepted
            walk.reject()
        depth = walk.here(tree.depths)
        return Verdict(tree.path_to(walk.node), depth, noise.draw(walk.here(walk.p)))


class _Walk:
    """Per batch row: the current node. Per node: its weight [B, N], the chance to keep the path up to it or beyond;
    the child to enter next; the residual p and q [B, N, V] after its rejected children."""

    def __init__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule) -> None:
        q = tree.draft_probs
        self.tree, self.rows = tree, torch.arange(len(probs), device=probs.device)
        self.next_child, self.next_sibling = order_of_children(tree)
        first = tree.tokens.gather(1, self.next_child.clamp(min=0))
        self.p = committed_laws(tree, probs, point_mass(first, probs) if q is None else q, rule).clone()
        self.q = None if q is None else q.clone()
        self.weight, self.node = torch.ones_like(probs[..., 0]), torch.zeros_like(self.rows)
        self.is_open = torch.ones_like(self.rows, dtype=torch.bool)  # still walking

    def here(self, values: Tensor) -> Tensor:  # [B, N, ...] -> [B, ...] of the current nodes
        return values[self.rows, self.node]

    def descend(self) -> Tensor:
        """Descends to a leaf of the remaining tree -> [B] whether it has a node to judge; the root is never judged."""
        while bool((enters := self.is_open & (self.here(self.next_child) >= 0)).any()):
            child = torch.where(enters, self.here(self.next_child), self.node)
            index = self.tree.tokens[self.rows, child][:, None]
            ratio = self.here(self.p).gather(1, index)
            if self.q is not None:
                ratio = ratio / self.here(self.q).gather(1, index).clamp(min=torch.finfo(ratio.dtype).tiny)
            weight = (self.here(self.weight) * ratio[:, 0]).clamp(max=1)
            self.weight[self.rows, child] = torch.where(enters, weight, self.here(self.weight))
            self.node = child
        return self.is_open & (self.node > 0)

    def reject(self) -> None:
        """In rows that are still open, rejects the current node and returns to its parent."""
        rows = self.is_open.nonzero()[:, 0]
        node = self.node[rows]
        above, x = self.tree.parents[rows, node], self.tree.tokens[rows, node]
        weight, p = self.weight[rows, above], self.p[rows, above]
        rest = weight[:, None] * p
        if self.q is None:
            rest = rest.scatter(1, x[:, None], 0)  # a chosen child is a point mass
        else:
            q = self.q[rows, above]
            rest, self.q[rows, above] = (rest - q).clamp(min=0), without(q, x)
        left = rest.sum(-1)
        below = left + 1 - weight
        self.weight[rows, above] = torch.where(below > 0, left / below, 1)
        self.p[rows, above] = normalise(rest, p)
        self.next_child[rows, above], self.node[rows] = self.next_sibling[rows, node], above
