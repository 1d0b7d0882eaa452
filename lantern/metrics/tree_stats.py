"""Shapes of draft trees and accepted paths as arrays, read from a generation's rounds after decoding. A site is a node
of an accepted path with children; they are judged in order until one is accepted or all are rejected."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lantern.types import PADDING, Generation, Round

PRIME = np.int64(1_000_003)  # number of a path of child ranks: its parent's number x PRIME + rank + 1, modulo 2^64


@dataclass(frozen=True)
class Shapes:
    """The draft trees of M rounds, one row each."""

    ranks: np.ndarray  # [M, N] earlier siblings of a node
    depths: np.ndarray  # [M, N]
    children: np.ndarray  # [M, N] number of children
    paths: np.ndarray  # [M, N] a number that identifies the ranks from the root; 0 for the root
    present: np.ndarray  # [M, N] false for padding


@dataclass(frozen=True)
class Decoded:
    """M rounds of single images in the order of decoding."""

    image: np.ndarray  # [M]
    start: np.ndarray  # [M] tokens committed before the round
    path: np.ndarray  # [M, A] accepted nodes, root first, padded with -1
    parents: np.ndarray  # [M, N]


def decoded(generation: Generation, first_image: int = 0) -> Decoded | None:
    """The rounds of a generation, one batch row after another; None if they were not recorded."""
    rounds = [r for r in generation.rounds if r.parents is not None]
    if not rounds:
        return None
    image = np.concatenate([np.asarray(r.images) for r in rounds])
    path = _padded([path for r in rounds for path in r.paths])
    return Decoded(image + first_image, _starts(image, (path >= 0).sum(1)), path, _parents(rounds))


def shapes(parents: np.ndarray) -> Shapes:
    """From parents [M, N], in one pass: parents come before their children."""
    rows, present = np.arange(len(parents)), parents >= -1
    ranks, depths, children = (np.zeros(parents.shape, np.int32) for _ in range(3))
    paths = np.zeros(parents.shape, np.int64)
    for node in range(1, parents.shape[1]):
        above, here = np.maximum(parents[:, node], 0), present[:, node]
        ranks[:, node] = (parents[:, :node] == parents[:, node, None]).sum(1)
        depths[:, node] = depths[rows, above] + 1
        paths[:, node] = paths[rows, above] * PRIME + ranks[:, node] + 1
        children[rows[here], above[here]] += 1
    return Shapes(ranks, depths, children, paths, present)


def _starts(image: np.ndarray, committed: np.ndarray) -> np.ndarray:
    """[M] tokens committed before each round; the prefill committed the first."""
    starts, count = np.zeros(len(image), np.int64), np.ones(image.max() + 1, np.int64)
    for row, (which, tokens) in enumerate(zip(image, committed, strict=True)):
        starts[row] = count[which]
        count[which] += tokens
    return starts


def _padded(lists: Sequence[Sequence[int]]) -> np.ndarray:
    array = np.full((len(lists), max(map(len, lists))), -1)
    for row, values in enumerate(lists):
        array[row, : len(values)] = values
    return array


def _parents(rounds: Sequence[Round]) -> np.ndarray:
    """[M, N] of all rounds, read from the device."""
    width = max(r.parents.shape[1] for r in rounds)
    read = [r.parents.cpu().numpy() for r in rounds]
    return np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=PADDING) for p in read])
