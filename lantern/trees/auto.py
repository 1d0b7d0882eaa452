"""tree=auto, which asks what Sequoia (2402.12374) asks: the tree that decodes fastest with this model, drafter, rule,
device and batch size, or none. A few images are decoded with trees of several sizes; from what they commit and cost the
best size is estimated, and it is taken only if it then proves fastest."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from lantern.prompts import Batch
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.search import Chances, best_paths, chances_by_rank, expected_tokens, fastest, tokens_of_first
from lantern.trees.static import StaticTree
from lantern.types import Generation, Round, TreePolicy

SIZES, DEPTHS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 63), (1, 2, 3, 4, 5, 6)
SAMPLED = ((3, 2), (12, 5))  # sizes and depths whose rounds are timed beside the largest tree's
SHARES = (0.5, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02, 0.01)  # by rank: the shape of the first static tree, no more than that

log = logging.getLogger(__name__)


class Decoder(Protocol):
    """A pipeline."""

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Generation: ...


class Family(Protocol):
    """Trees of all sizes and depths of which one decoding run tells how much each commits."""

    def learned(self, largest: TreePolicy, rounds: Sequence[Round]) -> "Family": ...  # from rounds with that tree
    def tree(self, size: int, depth: int) -> TreePolicy: ...
    def tokens(self, size: int, depth: int) -> float: ...  # expected a round


@dataclass(frozen=True)
class Dynamic:
    """EAGLE-2's trees, whose nodes stand best first."""

    width: int = 8
    rounds: Sequence[Round] = ()

    def learned(self, largest: TreePolicy, rounds: Sequence[Round]) -> "Dynamic":
        return Dynamic(self.width, rounds)

    def tree(self, size: int, depth: int) -> Eagle2Tree:
        return Eagle2Tree(size, depth, min(size, self.width), name=f"auto_eagle2_{size}_{depth}")

    def tokens(self, size: int, depth: int) -> float:
        return tokens_of_first(self.rounds, size, depth)


@dataclass(frozen=True)
class Static:
    """The best static tree of each size, once it is known how often each rank is followed."""

    chances: Chances = (SHARES,) * max(DEPTHS)

    def learned(self, largest: StaticTree, rounds: Sequence[Round]) -> "Static":
        return Static(chances_by_rank(rounds, largest.paths))

    def tree(self, size: int, depth: int) -> StaticTree:
        return StaticTree(best_paths(self.chances, size, depth), name=f"auto_static_{size}_{depth}")

    def tokens(self, size: int, depth: int) -> float:
        return expected_tokens(self.chances, best_paths(self.chances, size, depth))


class Trial(NamedTuple):
    tree: TreePolicy | None
    seconds: float


class AutoTree:
    """Not a tree yet: assemble() resolves it before decoding starts."""

    name = kind = "auto"
    width = 0

    def __init__(self, families: Sequence[Family], prompts: Sequence[str], batch_size: int = 1) -> None:
        """prompts: those of the images that are decoded to find out, two or a batch of them."""
        self.families, self.prompts, self.batch_size = families, prompts, batch_size
        self.batch = Batch.cycle(prompts, max(2, batch_size), seed=0)

    def at(self, batch_size: int) -> "AutoTree":
        """The same search for another batch size."""
        return AutoTree(self.families, self.prompts, batch_size)

    def resolve(self, pipeline: Callable[[TreePolicy | None], Decoder]) -> TreePolicy | None:
        """pipeline(tree) decodes with that tree, plainly with None. -> the fastest tree found, or None."""

        def decode(tree: TreePolicy | None) -> Generation:
            return pipeline(tree).generate(self.batch.prompts, self.batch.seeds, self.batch_size)

        decode(None)  # warms up
        trials = [Trial(None, decode(None).latency_s)]
        for family in self.families:
            trials += tried(family, decode)
        best = min(trials, key=lambda trial: trial.seconds)
        name = best.tree.name if best.tree else "none"
        log.info(
            "tree=auto is %s: %.2fx plain decoding at batch %d", name, trials[0].seconds / best.seconds, self.batch_size
        )
        return best.tree


def tried(family: Family, decode: Callable[[TreePolicy | None], Generation]) -> list[Trial]:
    """Trees of a few sizes and, last, the one that should be fastest by what they committed and cost."""
    sampled = [(max(SIZES), max(DEPTHS)), *SAMPLED]
    trees = [family.tree(*shape) for shape in sampled]
    made = [decode(tree) for tree in trees]
    family = family.learned(trees[0], made[0].rounds)
    cost = round_cost(sampled, [generation.latency_s / len(generation.rounds) for generation in made])
    size, depth, _ = fastest(SIZES, DEPTHS, family.tokens, cost)
    best = family.tree(size, depth)
    trials = [Trial(tree, generation.latency_s) for tree, generation in zip(trees, made, strict=True)]
    return [*trials, Trial(best, decode(best).latency_s)]


def round_cost(shapes: Sequence[tuple[int, int]], seconds: Sequence[float]) -> Callable[[int, int], float]:
    """(size, depth) -> seconds of a round: a constant, a share a node and a share a level, fitted to three or more."""
    parts = np.array([[1, size, depth] for size, depth in shapes], dtype=float)
    constant, node, level = np.linalg.lstsq(parts, np.asarray(seconds), rcond=None)[0]
    least = min(seconds) / 2  # a fit to noise must not promise rounds for nothing
    return lambda size, depth: max(least, constant + node * size + level * depth)
