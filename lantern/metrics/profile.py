"""Acceptance counts of a run: draft tokens judged and accepted by depth, rank, entropy of the target's law and position
in the image; tokens committed a round; draft tree nodes drafted and accepted."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from torch import Tensor

from lantern.metrics.entropy import law_entropies
from lantern.metrics.tree_stats import Decoded, Shapes, decoded, shapes
from lantern.pipeline import Pipeline
from lantern.types import Generation

ENTROPY_IMAGES = 8  # their laws are computed again, outside all timing
SHOWN_NODES = 256  # the most often drafted; dynamic trees have thousands
ROWS_AT_ONCE = 4096

Profile = dict[str, object]  # numbers and lists, as in profiles.json


class RunningProfile:
    """The profile of images that are added as they are made: their rounds are counted and not kept, but for those of
    the first images, whose laws are computed at the end."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._images = self._counted = 0  # added, and of them those whose rounds were recorded
        self._counts: _Counts | None = None
        self._first: list[tuple[Decoded, Tensor, Sequence[str]]] = []

    def add(self, prompts: Sequence[str], generation: Generation) -> None:
        """Counts the rounds of the images of these prompts."""
        rounds, tokens = decoded(generation, self._images), generation.tokens
        self._images += len(tokens)
        if rounds is None:
            return
        if self._counts is None:
            self._counts = _Counts(tokens.shape[1])
        for part in _chunks(rounds):
            self._counts.add(part, shapes(part.parents))
        if (count := min(ENTROPY_IMAGES - self._counted, len(tokens))) > 0:
            early = rounds.image < rounds.image.min() + count
            self._first.append((_rows(rounds, early), tokens[:count], prompts[:count]))
        self._counted += len(tokens)

    def profile(self) -> Profile | None:
        """Of all images so far; None where no rounds were recorded."""
        if self._counts is None:
            return None
        height, width = self._pipeline.target.grid
        laws = _entropies(self._pipeline, self._first)
        for rounds, _, _ in self._first if laws else ():
            self._counts.add_bits(rounds, shapes(rounds.parents), laws)
        return {"grid": [height, width], "images": self._counted} | self._counts.listed(laws)


def _entropies(pipeline: Pipeline, first: Sequence[tuple[Decoded, Tensor, Sequence[str]]]) -> dict[int, np.ndarray]:
    """Bits [L] by image; none where laws have no entropy."""
    found: dict[int, np.ndarray] = {}
    for rounds, tokens, prompts in first if pipeline.sampling.has_entropy else ():
        laws = law_entropies(pipeline.target, pipeline.sampling, prompts, tokens)
        bits = laws.double().cpu().numpy()
        found |= {int(rounds.image.min()) + i: row for i, row in enumerate(bits)}
    return found


def _chunks(rounds: Decoded) -> list[Decoded]:
    return [_rows(rounds, slice(i, i + ROWS_AT_ONCE)) for i in range(0, len(rounds.image), ROWS_AT_ONCE)]


def _rows(rounds: Decoded, which: slice | np.ndarray) -> Decoded:
    return Decoded(*(field[which] for field in (rounds.image, rounds.start, rounds.path, rounds.parents)))


def _sites(rounds: Decoded, trees: Shapes) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Level by level: rows [S], their nodes with children, and the accepted child of each or -1."""
    rows = np.arange(len(rounds.image))
    for level in range(rounds.path.shape[1]):
        node = rounds.path[:, level]
        at = (node >= 0) & (trees.children[rows, np.maximum(node, 0)] > 0)
        if at.any():
            below = rounds.path[:, level + 1] if level + 1 < rounds.path.shape[1] else np.full_like(node, -1)
            yield level, rows[at], node[at], below[at]


class _Counts:
    """Sums over sites."""

    def __init__(self, num_tokens: int) -> None:
        self.rounds, self.committed = 0, _Growing()
        self.depth, self.rank, self.bits, self.position = _Tally(), _Tally(), _Tally(), _Tally(num_tokens)
        self.tree: dict[int, list] = {}  # path number -> path of ranks, times drafted, times accepted

    def add(self, rounds: Decoded, trees: Shapes) -> None:
        self.rounds += len(rounds.image)
        self.committed.add((rounds.path >= 0).sum(1))
        for level, rows, node, below in _sites(rounds, trees):
            accepted = below >= 0
            self.depth.add(np.full(len(rows), level), accepted)
            self.position.add(rounds.start[rows] + level, accepted)
            rank = np.where(accepted, trees.ranks[rows, np.maximum(below, 0)], trees.children[rows, node])
            for judged_rank in range(int(rank.max()) + 1):
                judged = (rank > judged_rank) | ((rank == judged_rank) & accepted)
                self.rank.add(np.full(int(judged.sum()), judged_rank), (rank == judged_rank)[judged])
        self._add_tree(rounds, trees)

    def add_bits(self, rounds: Decoded, trees: Shapes, laws: Mapping[int, np.ndarray]) -> None:
        for level, rows, _, below in _sites(rounds, trees):
            places = zip(rounds.image[rows], rounds.start[rows] + level, strict=True)
            bits = [laws[image][position] for image, position in places]
            self.bits.add(np.asarray(bits, np.int64), below >= 0)

    def _add_tree(self, rounds: Decoded, trees: Shapes) -> None:
        numbers, first, drafted = np.unique(trees.paths[trees.present], return_index=True, return_counts=True)
        rows, nodes = (index[first] for index in np.nonzero(trees.present))
        for i in np.argsort(trees.depths[rows, nodes], kind="stable"):
            number, row, node = int(numbers[i]), rows[i], nodes[i]
            if number not in self.tree:
                above = self.tree[int(trees.paths[row, rounds.parents[row, node]])][0] if node else []
                self.tree[number] = [[*above, int(trees.ranks[row, node])] if node else [], 0, 0]
            self.tree[number][1] += int(drafted[i])
        row, level = np.nonzero(rounds.path >= 0)
        for number, times in zip(
            *np.unique(trees.paths[row, rounds.path[row, level]], return_counts=True), strict=True
        ):
            self.tree[int(number)][2] += int(times)

    def listed(self, laws: Mapping[int, np.ndarray]) -> Profile:
        nodes = sorted(self.tree.values(), key=lambda node: (-node[1], len(node[0]), node[0]))
        return {
            "rounds": self.rounds,
            "committed": self.committed.listed(),  # rounds that committed 0, 1, 2 … tokens
            "depth": self.depth.listed(), "rank": self.rank.listed(),
            "position": self.position.listed(), "entropy": self.bits.listed(),  # entropy: by whole bits
            "entropy_images": len(laws),
            "entropy_bits": [round(float(b), 3) for b in np.mean(list(laws.values()), 0)] if laws else [],  # [L]
            "nodes": len(nodes), "nodes_accepted": sum(node[2] > 0 for node in nodes),
            "tree": [dict(zip(("path", "drafted", "accepted"), node, strict=True)) for node in nodes[:SHOWN_NODES]],
        }  # fmt: skip


class _Growing:
    """Counts of small integers; the array grows with the largest."""

    def __init__(self, size: int = 0) -> None:
        self.counts = np.zeros(size, np.int64)

    def add(self, values: np.ndarray) -> None:
        fresh = np.bincount(values, minlength=len(self.counts))
        fresh[: len(self.counts)] += self.counts
        self.counts = fresh

    def listed(self) -> list[int]:
        return self.counts.tolist()


class _Tally:
    """Numbers judged and accepted, by a small integer."""

    def __init__(self, size: int = 0) -> None:
        self.judged, self.accepted = _Growing(size), _Growing(size)

    def add(self, values: np.ndarray, accepted: np.ndarray) -> None:
        self.judged.add(values)
        self.accepted.add(values[accepted])

    def listed(self) -> dict[str, list[int]]:
        judged = self.judged.listed()
        accepted = self.accepted.listed()
        return {"judged": judged, "accepted": accepted + [0] * (len(judged) - len(accepted))}
