"""A drafter that delegates to another one and records the laws that were verified at some of the positions."""

from typing import NamedTuple

import torch
from torch import Tensor

from lantern.types import PADDING, Drafter, DraftTree, Forward, Proposals, Verdict


class Visit(NamedTuple):
    """A committed position: the laws of its parent node, and the children that were judged there."""

    p: Tensor  # [V]
    q: Tensor | None  # [V] the law the children were drawn from; None: they were chosen
    children: Tensor  # [M] their codes, in order
    depth: int  # of the node
    image: int = 0  # its number, in order of admission


class RecordingDrafter:
    """Implements lantern.types.Drafter. Records every `stride`-th visited position over all rows."""

    def __init__(self, drafter: Drafter, stride: int) -> None:
        self.drafter, self.stride = drafter, stride
        self.name, self.tree, self.weights_hash = drafter.name, drafter.tree, drafter.weights_hash
        self.num_nodes, self.depth = drafter.num_nodes, drafter.depth
        self.visits: list[Visit] = []
        self._count = self._admitted = 0
        self._images: list[int] = []  # of each row

    @property
    def forwards(self) -> int:
        return self.drafter.forwards

    @property
    def forward_s(self) -> float:
        return self.drafter.forward_s

    def allocate(self, batch_size: int) -> None:
        self._images = [0] * batch_size
        self.drafter.allocate(batch_size)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        for row in rows.tolist():
            self._images[row] = self._admitted
            self._admitted += 1
        self.drafter.begin(prefill, rows)

    def draft(self, roots: Tensor, room: Tensor, proposals: Proposals) -> DraftTree:
        return self.drafter.draft(roots, room, proposals)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        for row, path in enumerate(verdict.paths):
            if self._images[row] in self._images[:row]:
                continue  # a copy by which a draining batch keeps its size
            for depth, node in enumerate(path):
                if self._count % self.stride == 0:
                    self.visits.append(_visit(tree, probs, row, node, depth, self._images[row]))
                self._count += 1
        self.drafter.observe(tree, forward, probs, verdict)

    def keep(self, rows: Tensor) -> None:
        self._images = [self._images[row] for row in rows.tolist()]
        self.drafter.keep(rows)


def _visit(tree: DraftTree, probs: Tensor, row: int, node: int, depth: int, image: int) -> Visit:
    children = tree.tokens[row, tree.parents[row] == node]
    q = None if tree.draft_probs is None else tree.draft_probs[row, node].clone()
    return Visit(probs[row, node].clone(), q, children, depth, image)


def one_level(codes: Tensor, p: Tensor, q: Tensor | None) -> tuple[DraftTree, Tensor]:
    """codes [S, M], -1 where there is no child -> S trees of a root and its children, and their laws [S, M + 1, V]."""
    rows, count = codes.shape
    root = codes.new_zeros(rows, 1)
    tokens = torch.cat([root, codes.clamp(min=0)], 1)
    parents = torch.cat([root - 1, torch.where(codes < 0, PADDING, 0)], 1)
    laws = [None if law is None else law.expand(rows, count + 1, -1) for law in (q, p)]
    return DraftTree(tokens, parents, laws[0]), laws[1]
