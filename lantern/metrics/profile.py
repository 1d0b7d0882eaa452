"""Acceptance counts of a run: draft tokens judged and accepted by depth, rank, entropy of the target's law and position
in the image; tokens committed a round; draft tree nodes drafted and accepted."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from lantern.metrics.entropy import law_entropies
from lantern.metrics.tree_stats import Decoded, Shapes, decoded, shapes
from lantern.sampling import Sampling
from lantern.types import Generation, Target

ENTROPY_IMAGES = 8  # their laws are computed again, outside all timing
SHOWN_NODES = 256  # the most often drafted; dynamic trees have thousands
ROWS_AT_ONCE = 4096

Profile = dict[str, object]  # numbers and lists, as in profiles.json


class Decoder(Protocol):
    """The part of a pipeline that a profile needs."""

    target: Target
    sampling: Sampling


def profile_of(pipeline: Decoder, prompts: Sequence[str], generations: Sequence[Generation]) -> Profile | None:
    """The profile of all images of the generations, in the prompts' order; None where no rounds were recorded."""
    images, kept = 0, []
    for generation in generations:
        if (rounds := decoded(generation, images)) is not None:
            kept.append((rounds, generation.tokens, prompts[images : images + len(generation.tokens)]))
        images += len(generation.tokens)
    if not kept:
        return None
    height, width = pipeline.target.grid
    laws = _entropies(pipeline, kept)
    counts = _Counts(kept[0][1].shape[1])
    for rounds, _, _ in kept:
        for part in _chunks(rounds):
            counts.add(part, shapes(part.parents), laws)
    return {"grid": [height, width], "images": sum(len(tokens) for _, tokens, _ in kept)} | counts.listed(laws)


def _entropies(pipeline: Decoder, kept: Sequence[tuple[Decoded, Tensor, Sequence[str]]]) -> dict[int, np.ndarray]:
    """Bits [L] by image, of the first images; none where laws have no entropy."""
    found: dict[int, np.ndarray] = {}
    for rounds, tokens, prompts in kept if pipeline.sampling.has_entropy else ():
        count = min(ENTROPY_IMAGES - len(found), len(tokens))
        if count > 0:
            laws = law_entropies(pipeline.target, pipeline.sampling, prompts[:count], tokens[:count])
            bits = laws.double().cpu().numpy()
            found |= {int(rounds.image.min()) + i: row for i, row in enumerate(bits)}
    return found


def _chunks(rounds: Decoded) -> list[Decoded]:
    starts = range(0, len(rounds.image), ROWS_AT_ONCE)
    fields = (rounds.image, rounds.start, rounds.path, rounds.parents)
    return [Decoded(*(field[i : i + ROWS_AT_ONCE] for field in fields)) for i in starts]


class _Counts:
    """Sums over sites."""

    def __init__(self, num_tokens: int) -> None:
        self.rounds, self.committed = 0, _Growing()
        self.depth, self.rank, self.bits, self.position = _Tally(), _Tally(), _Tally(), _Tally(num_tokens)
        self.tree: dict[int, list] = {}  # path number -> path of ranks, times drafted, times accepted

    def add(self, rounds: Decoded, trees: Shapes, laws: Mapping[int, np.ndarray]) -> None:
        rows = np.arange(len(rounds.image))
        self.rounds += len(rows)
        self.committed.add((rounds.path >= 0).sum(1))
        for level in range(rounds.path.shape[1]):
            node = rounds.path[:, level]
            at = (node >= 0) & (trees.children[rows, np.maximum(node, 0)] > 0)
            if not at.any():
                continue
            below = rounds.path[:, level + 1] if level + 1 < rounds.path.shape[1] else np.full_like(node, -1)
            self._add_sites(rounds, trees, laws, level, rows[at], node[at], below[at])
        self._add_tree(rounds, trees)

    def _add_sites(self, rounds: Decoded, trees: Shapes, laws, level: int, rows, node, below) -> None:  # all [S]
        accepted, position = below >= 0, rounds.start[rows] + level
        self.depth.add(np.full(len(rows), level), accepted)
        self.position.add(position, accepted)
        rank = np.where(accepted, trees.ranks[rows, np.maximum(below, 0)], trees.children[rows, node])
        for judged_rank in range(int(rank.max()) + 1):
            judged = (rank > judged_rank) | ((rank == judged_rank) & accepted)
            self.rank.add(np.full(int(judged.sum()), judged_rank), (rank == judged_rank)[judged])
        known = np.isin(rounds.image[rows], list(laws))
        bits = [laws[image][index] for image, index in zip(rounds.image[rows][known], position[known], strict=True)]
        self.bits.add(np.asarray(bits, np.int64), accepted[known])

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
