"""Acceptance counts of a run: draft tokens judged and accepted by depth, rank, entropy of the target's law and position
in the image; tokens committed a round; draft tree nodes drafted and accepted.

A site is a node of an accepted path with children. They are judged in order until one is accepted or all are rejected.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import log

import numpy as np
import torch
from torch import Tensor

from lantern.pipeline import Pipeline
from lantern.sampling import Sampling, entropy
from lantern.types import PADDING, Generation, Target, TreeTopology, Verdict

ENTROPY_IMAGES = 8  # their laws are computed again, outside all timing
SHOWN_NODES = 256  # the most often drafted; dynamic trees have thousands
ROWS_AT_ONCE = 4096
NODES_AT_ONCE = 32  # of a pass over an image's tokens: a longer one needs more memory for its logits
PRIME = np.int64(1_000_003)  # number of a path of child ranks: its parent's number x PRIME + rank + 1, modulo 2^64

Profile = dict[str, object]  # numbers and lists, as in profiles.json


class RunningProfile:
    """The profile of images that are added as they are made. Their rounds are counted and then dropped; only rounds of
    the first images are kept, whose laws are computed at the end."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._images = self._counted = 0  # images added; those with recorded rounds
        self._counts: _Counts | None = None
        self._first: list[tuple[_Rounds, Tensor, Sequence[str]]] = []

    def add(self, prompts: Sequence[str], generation: Generation) -> None:
        """Counts the rounds of the images of these prompts."""
        rounds, tokens = _rounds_of(generation, self._images), generation.tokens
        self._images += len(tokens)
        if rounds is None:
            return
        if self._counts is None:
            self._counts = _Counts(tokens.shape[1])
        for start in range(0, len(rounds.image), ROWS_AT_ONCE):
            self._counts.add(rounds.select(slice(start, start + ROWS_AT_ONCE)))
        if (count := min(ENTROPY_IMAGES - self._counted, len(tokens))) > 0:
            is_first = rounds.image < rounds.image.min() + count
            self._first.append((rounds.select(is_first), tokens[:count], prompts[:count]))
        self._counted += len(tokens)

    def profile(self) -> Profile | None:
        """Of all images so far; None where no rounds were recorded."""
        if self._counts is None:
            return None
        height, width = self._pipeline.target.grid
        entropies = self._entropies()
        for rounds, _, _ in self._first if entropies else ():
            self._counts.add_entropies(rounds, entropies)
        return {"grid": [height, width], "images": self._counted} | self._counts.as_lists(entropies)

    def _entropies(self) -> dict[int, np.ndarray]:
        """Bits [L] by image; none where laws have no entropy."""
        entropies: dict[int, np.ndarray] = {}
        for rounds, tokens, prompts in self._first if self._pipeline.sampling.has_entropy else ():
            bits = law_entropies(self._pipeline.target, self._pipeline.sampling, prompts, tokens).double().cpu().numpy()
            entropies |= {int(rounds.image.min()) + i: row for i, row in enumerate(bits)}
        return entropies


@dataclass(frozen=True)
class _Rounds:
    """M rounds of single images in the order of decoding."""

    image: np.ndarray  # [M]
    start: np.ndarray  # [M] tokens committed before the round
    path: np.ndarray  # [M, A] accepted nodes, root first, padded with -1
    parents: np.ndarray  # [M, N]

    def select(self, rows: slice | np.ndarray) -> "_Rounds":
        return _Rounds(self.image[rows], self.start[rows], self.path[rows], self.parents[rows])


def _rounds_of(generation: Generation, first_image: int) -> _Rounds | None:
    """One batch row after another; None if no trees were recorded."""
    recorded = [r for r in generation.rounds if r.parents is not None]
    if not recorded:
        return None
    image = np.concatenate([np.asarray(r.images) for r in recorded])
    path = np.array([*zip_longest(*(path for r in recorded for path in r.paths), fillvalue=-1)]).T
    start, committed = np.zeros(len(image), np.int64), np.ones(image.max() + 1, np.int64)  # the prefill commits one
    for row, (index, tokens) in enumerate(zip(image, (path >= 0).sum(1), strict=True)):
        start[row] = committed[index]
        committed[index] += tokens
    width = max(r.parents.shape[1] for r in recorded)
    parents = [r.parents.cpu().numpy() for r in recorded]
    parents = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=PADDING) for p in parents]
    return _Rounds(image + first_image, start, path, np.concatenate(parents))


class _Trees:
    """The shapes of the draft trees of M rounds, one row each."""

    def __init__(self, parents: np.ndarray) -> None:  # [M, N]; parents come before their children
        rows, self.present = np.arange(len(parents)), parents >= -1  # [M, N] false for padding
        self.ranks = np.zeros(parents.shape, np.int32)  # [M, N] earlier siblings of a node
        self.depths, self.num_children = np.zeros_like(self.ranks), np.zeros_like(self.ranks)  # [M, N]
        self.paths = np.zeros(parents.shape, np.int64)  # [M, N] identifies the ranks from the root, which has 0
        for node in range(1, parents.shape[1]):
            above, here = np.maximum(parents[:, node], 0), self.present[:, node]
            self.ranks[:, node] = (parents[:, :node] == parents[:, node, None]).sum(1)
            self.depths[:, node] = self.depths[rows, above] + 1
            self.paths[:, node] = self.paths[rows, above] * PRIME + self.ranks[:, node] + 1
            self.num_children[rows[here], above[here]] += 1


def _sites(rounds: _Rounds, trees: _Trees) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Level by level: rows [S], their nodes with children, and the accepted child of each or -1."""
    rows = np.arange(len(rounds.image))
    for level in range(rounds.path.shape[1]):
        node = rounds.path[:, level]
        at = (node >= 0) & (trees.num_children[rows, np.maximum(node, 0)] > 0)
        if at.any():
            below = rounds.path[:, level + 1] if level + 1 < rounds.path.shape[1] else np.full_like(node, -1)
            yield level, rows[at], node[at], below[at]


class _Counts:
    """Sums over sites."""

    def __init__(self, num_tokens: int) -> None:
        self.rounds, self.committed = 0, np.zeros(0, np.int64)  # rounds that committed 0, 1, 2 … tokens
        self.depth, self.rank, self.bits, self.position = _Tally(), _Tally(), _Tally(), _Tally(num_tokens)
        self.tree: dict[int, list] = {}  # path number -> path of ranks, times drafted, times accepted

    def add(self, rounds: _Rounds) -> None:
        trees = _Trees(rounds.parents)
        self.rounds += len(rounds.image)
        self.committed = _add_counts(self.committed, (rounds.path >= 0).sum(1))
        for level, rows, node, below in _sites(rounds, trees):
            accepted = below >= 0
            self.depth.add(np.full(len(rows), level), accepted)
            self.position.add(rounds.start[rows] + level, accepted)
            rank = np.where(accepted, trees.ranks[rows, np.maximum(below, 0)], trees.num_children[rows, node])
            for judged_rank in range(int(rank.max()) + 1):
                judged = (rank > judged_rank) | ((rank == judged_rank) & accepted)
                self.rank.add(np.full(int(judged.sum()), judged_rank), (rank == judged_rank)[judged])
        self._add_tree(rounds, trees)

    def add_entropies(self, rounds: _Rounds, entropies: Mapping[int, np.ndarray]) -> None:
        for level, rows, _, below in _sites(rounds, _Trees(rounds.parents)):
            places = zip(rounds.image[rows], rounds.start[rows] + level, strict=True)
            bits = [entropies[image][position] for image, position in places]
            self.bits.add(np.asarray(bits, np.int64), below >= 0)

    def _add_tree(self, rounds: _Rounds, trees: _Trees) -> None:
        numbers, first, drafted = np.unique(trees.paths[trees.present], return_index=True, return_counts=True)
        rows, nodes = (index[first] for index in np.nonzero(trees.present))
        for i in np.argsort(trees.depths[rows, nodes], kind="stable"):
            number, row, node = int(numbers[i]), rows[i], nodes[i]
            if number not in self.tree:
                above = self.tree[int(trees.paths[row, rounds.parents[row, node]])][0] if node else []
                self.tree[number] = [[*above, int(trees.ranks[row, node])] if node else [], 0, 0]
            self.tree[number][1] += int(drafted[i])
        row, level = np.nonzero(rounds.path >= 0)
        accepted = trees.paths[row, rounds.path[row, level]]
        for number, times in zip(*np.unique(accepted, return_counts=True), strict=True):
            self.tree[int(number)][2] += int(times)

    def as_lists(self, entropies: Mapping[int, np.ndarray]) -> Profile:
        nodes = sorted(self.tree.values(), key=lambda node: (-node[1], len(node[0]), node[0]))
        mean_bits = np.mean(list(entropies.values()), 0) if entropies else []  # [L]
        return {
            "rounds": self.rounds, "committed": self.committed.tolist(),
            "depth": self.depth.as_lists(), "rank": self.rank.as_lists(),
            "position": self.position.as_lists(), "entropy": self.bits.as_lists(),  # entropy: by whole bits
            "entropy_images": len(entropies), "entropy_bits": [round(float(bits), 3) for bits in mean_bits],
            "nodes": len(nodes), "nodes_accepted": sum(node[2] > 0 for node in nodes),
            "tree": [dict(zip(("path", "drafted", "accepted"), node, strict=True)) for node in nodes[:SHOWN_NODES]],
        }  # fmt: skip


class _Tally:
    """Numbers judged and accepted, by a small integer."""

    def __init__(self, size: int = 0) -> None:
        self.judged = self.accepted = np.zeros(size, np.int64)

    def add(self, values: np.ndarray, accepted: np.ndarray) -> None:
        self.judged = _add_counts(self.judged, values)
        self.accepted = _add_counts(self.accepted, values[accepted])

    def as_lists(self) -> dict[str, list[int]]:
        accepted = np.pad(self.accepted, (0, len(self.judged) - len(self.accepted)))
        return {"judged": self.judged.tolist(), "accepted": accepted.tolist()}


def _add_counts(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Counts of small integers and those of more values; the array grows with the largest."""
    total = np.bincount(values, minlength=len(counts))
    total[: len(counts)] += counts
    return total


@torch.inference_mode()
def law_entropies(target: Target, sampling: Sampling, prompts: Sequence[str], tokens: Tensor) -> Tensor:
    """tokens [B, L] -> entropy in bits [B, L] of the law p of each position, given the tokens before it."""
    batch, length = tokens.shape
    tokens = tokens.to(target.codebook.device)
    target.allocate(batch, NODES_AT_ONCE)
    prefill = target.prefill(list(prompts), torch.arange(batch, device=tokens.device))
    nats = [entropy(sampling.law(prefill.logits))]
    for start in range(0, length - 1, NODES_AT_ONCE):
        chunk = tokens[:, start : min(start + NODES_AT_ONCE, length - 1)]  # the last token conditions nothing
        nodes = torch.arange(chunk.shape[1], device=tokens.device).repeat(batch, 1)
        forward = target.verify(TreeTopology.chain(chunk.shape[1] - 1, tokens.device).tree(chunk))
        nats.append(entropy(sampling.law(forward.logits)))
        target.commit(Verdict(nodes, nodes[:, -1], tokens[:, start + chunk.shape[1]]))
    return torch.cat(nats, 1) / log(2)
