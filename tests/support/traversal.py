"""A user's verification: traversal (2505.12398), which judges a tree from its leaves to the root. One row at a time."""

import torch
from torch import Tensor

from lantern.acceptance.relaxed import normalise
from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Verdict
from lantern.verification.block import BlockProposals


class Traversal:
    """`bonus` multiplies the chance of every draft: right at 1 alone."""

    name, head_s, proposals = "traversal", 0.0, BlockProposals

    def __init__(self, bonus: float = 1.0) -> None:
        self.bonus = bonus

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        rows = [_Row(tree, probs, row) for row in range(len(probs))]
        while any(row.judged for row in rows):
            chance = torch.stack([row.weight(row.judged) for row in rows])
            judged = torch.tensor([row.judged for row in rows])
            accepted = noise.accepts((self.bonus * chance).clamp(max=1), judged)
            for row, is_accepted in zip(rows, accepted.tolist(), strict=True):
                row.go_on(is_accepted)
        last = torch.tensor([row.kept for row in rows])
        depth = tree.depths.gather(1, last[:, None])[:, 0]
        return Verdict(tree.path_to(last), depth, noise.draw(torch.stack([row.p[row.kept] for row in rows])))


class _Row:
    """The nodes left of one image's tree, what is left of p and q at each, and the weights of those that lost some."""

    def __init__(self, tree: DraftTree, probs: Tensor, row: int) -> None:
        self.tokens, self.parents = tree.tokens[row].tolist(), tree.parents[row].tolist()
        self.p, self.weights = list(probs[row]), {0: probs.new_ones(())}
        self.q = None if tree.draft_probs is None else list(tree.draft_probs[row])
        nodes = range(len(self.parents))
        self.children = [[child for child in nodes if self.parents[child] == node] for node in nodes]
        self.judged = self.kept = self.first_leaf()

    def first_leaf(self) -> int:
        node = 0
        while self.children[node]:
            node = self.children[node][0]
        return node

    def draft_law(self, child: int) -> Tensor:
        size = self.p[0].shape[0]
        chosen = torch.eye(size, dtype=self.p[0].dtype)[self.tokens[child]]
        return chosen if self.q is None else self.q[self.parents[child]]

    def weight(self, node: int) -> Tensor:
        if node in self.weights:
            return self.weights[node]
        x, above = self.tokens[node], self.parents[node]
        return (self.weight(above) * self.p[above][x] / self.draft_law(node)[x]).clamp(max=1)

    def go_on(self, is_accepted: bool) -> None:
        if not is_accepted and self.judged:
            self.reject(self.judged)
            self.judged = self.kept = self.first_leaf()
        else:
            self.judged = 0

    def reject(self, child: int) -> None:
        above, q = self.parents[child], self.draft_law(child)
        weight, rest = self.weight(above), (self.weight(above) * self.p[above] - q).clamp(min=0)
        below = rest.sum() + 1 - weight
        self.weights[above] = rest.sum() / below if below > 0 else torch.ones_like(below)
        self.p[above] = normalise(rest, self.p[above])
        if self.q is not None:
            self.q[above] = normalise(q.scatter(0, torch.tensor(self.tokens[child]), 0), 0.0)
        self.children[above].remove(child)
