"""What tree=auto chooses from: families of shapes of which a few decoding runs tell how much every member commits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from typing import NamedTuple, Protocol

from lantern.pipeline import Shape
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.tuning.search import Chances, best_paths, chances_by_rank, expected_tokens, tokens_of_first
from lantern.types import Round

SIZES, DEPTHS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 63), (1, 2, 3, 4, 5, 6)
WINDOWS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32)
LAST = 4  # places at a window's end
SHARES = (0.5, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02, 0.01)  # by rank: the shape of the first static tree, no more than that


class Size(NamedTuple):
    """Of a member of a family."""

    nodes: int  # of the drafter's tree
    levels: int  # of the drafter's tree, a drafter forward each
    window: int = 0  # nodes that the target's own passes guess


class Family(Protocol):
    settings: frozenset[str]  # what of a drafter its shapes decide
    sampled: Sequence[Size]  # decoded with first

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Family": ...  # from the rounds of each sampled size
    def shape(self, size: Size) -> Shape: ...
    def sizes(self) -> Iterable[Size]: ...
    def tokens(self, size: Size) -> float: ...  # expected a round
    def near(self, size: Size) -> Sequence[Size]: ...  # what is tried, tokens() being as exact as it is


def tree_sizes() -> list[Size]:
    return [Size(nodes, levels) for levels in DEPTHS for nodes in SIZES if nodes >= levels]


@dataclass(frozen=True)
class Dynamic:
    """EAGLE-2's trees, whose nodes stand best first."""

    width: int = 8
    rounds: Sequence[Round] = ()

    settings = frozenset({"tree"})
    sampled = (Size(63, 6), Size(3, 2), Size(12, 5))

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Dynamic":
        return Dynamic(self.width, runs[0])

    def shape(self, size: Size) -> Shape:
        name = f"auto_eagle2_{size.nodes}_{size.levels}"
        return Shape({"tree": Eagle2Tree(size.nodes, size.levels, min(size.nodes, self.width), name)})

    def sizes(self) -> list[Size]:
        width = self.width
        return [size for size in tree_sizes() if size.nodes <= width + (size.levels - 1) * width**2]

    def tokens(self, size: Size) -> float:
        return tokens_of_first(self.rounds, size.nodes, size.levels)

    def near(self, size: Size) -> list[Size]:
        return [size]


@dataclass(frozen=True)
class Static:
    """The best static tree of each size, once it is known how often each rank is followed."""

    chances: Chances = (SHARES,) * max(DEPTHS)

    settings = frozenset({"tree"})
    sampled = (Size(63, 6), Size(3, 2), Size(12, 5))

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Static":
        return Static(chances_by_rank(runs[0], self.tree(self.sampled[0]).paths))

    def tree(self, size: Size) -> StaticTree:
        paths = best_paths(self.chances, size.nodes, size.levels)
        depth = max(map(len, paths))
        return StaticTree(paths, f"auto_chain_{depth}" if depth == len(paths) else f"auto_static_{len(paths)}_{depth}")

    def shape(self, size: Size) -> Shape:
        return Shape({"tree": self.tree(size)})

    def sizes(self) -> list[Size]:
        return tree_sizes()

    def tokens(self, size: Size) -> float:
        return expected_tokens(self.chances, best_paths(self.chances, size.nodes, size.levels))

    def near(self, size: Size) -> list[Size]:
        return [size]


@dataclass(frozen=True)
class Windows:
    """Jacobi windows. A shorter one commits less than the same part of a longer one, whose guesses have been refined
    more often, so that lengths about the estimate are tried. What hangs beside a window counts only then."""

    rounds: Sequence[Round] = ()

    settings = frozenset({"length"})
    sampled = (Size(0, 0, 24), Size(0, 0, 8))

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Windows":
        return type(self)(runs[0])

    def shape(self, size: Size) -> Shape:
        return Shape({"length": size.window})

    def sizes(self) -> list[Size]:
        return [Size(0, 0, window) for window in WINDOWS if window <= self.sampled[0].window]

    def tokens(self, size: Size) -> float:
        return tokens_of_first(self.rounds, size.window, size.window)

    def near(self, size: Size) -> list[Size]:
        return neighbours(size)


@dataclass(frozen=True)
class BranchingWindows(Windows):
    """Windows that may branch. What nodes beside a window bring is not estimated but tried: none, few, one a place."""

    settings = frozenset({"length", "branches"})

    def shape(self, size: Size) -> Shape:
        return Shape({"length": size.window, "branches": size.nodes})

    def near(self, size: Size) -> list[Size]:
        return [*neighbours(size), *(size._replace(nodes=nodes) for nodes in {max(1, size.window // 4), size.window})]


@dataclass(frozen=True)
class Continued:
    """Static trees that a window continues behind their likeliest deepest node."""

    static: Static = Static()
    guessed: Sequence[float] = (0.5,) * max(WINDOWS)  # by depth: how often a window's token is followed if reached

    settings = frozenset({"tree", "length", "tail"})
    sampled = (Size(25, 5, 6), Size(1, 1, 16), Size(8, 3, 2))

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Continued":
        tree = self.static.tree(self.sampled[0])
        window = self.sampled[1].levels + self.sampled[1].window
        size = tree.num_nodes
        inside = [turn._replace(paths=[[n for n in path if n < size] for path in turn.paths]) for turn in runs[0]]
        along = [level[0] for level in chances_by_rank(runs[1], chain(window).paths)]
        beyond = sum(along[-LAST:]) / LAST  # what has not been looked at goes on as it ends
        return Continued(Static(chances_by_rank(inside, tree.paths)), along + [beyond] * max(WINDOWS))

    def shape(self, size: Size) -> Shape:
        return Shape({"tree": self.static.tree(size), "length": 0, "tail": size.window})

    def sizes(self) -> list[Size]:
        most = self.sampled[0]
        trees = [size for size in tree_sizes() if size.nodes <= most.nodes and size.levels <= most.levels]
        return [tree._replace(window=window) for tree in trees for window in WINDOWS]

    def tokens(self, size: Size) -> float:
        paths = best_paths(self.static.chances, size.nodes, size.levels)
        depth = max(map(len, paths))
        reached = prod(level[0] for level in self.static.chances[:depth])
        below = accumulate(self.guessed[depth : depth + size.window], mul)
        return expected_tokens(self.static.chances, paths) + reached * sum(below)

    def near(self, size: Size) -> list[Size]:
        return neighbours(size)


def neighbours(size: Size) -> list[Size]:
    """The size with its window, one two steps shorter, and one two steps longer."""
    place = WINDOWS.index(size.window)
    return [size._replace(window=WINDOWS[i]) for i in (place, place - 2, place + 2) if 0 <= i < len(WINDOWS)]
