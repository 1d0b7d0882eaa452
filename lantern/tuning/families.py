"""What tree=auto chooses from: families of shapes. A few decoding runs predict what all shapes of a family commit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from lantern.pipeline import DrafterOverrides
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree
from lantern.tuning.search import Chances, best_paths, chances_by_rank, expected_tokens, tokens_of_first
from lantern.types import Round

SIZES, DEPTHS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 63), (1, 2, 3, 4, 5, 6)
WINDOWS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32)
WIDTH = 8  # children of a node, at most
SHARES = (0.5, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02, 0.01)  # assumed chances by rank, for the first static tree


class Size(NamedTuple):
    """Of a shape of a family."""

    nodes: int  # of the drafter's tree
    levels: int  # of the drafter's tree, a drafter forward each
    window: int = 0  # nodes of a Jacobi window


SAMPLED = Size(63, 6), Size(3, 2), Size(12, 5)  # trees


class Family(Protocol):
    """Shapes whose committed tokens a few decoding runs predict."""

    settings: frozenset[str]  # drafter parameters that its shapes set
    sampled: Sequence[Size]  # decoded with first

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Family": ...  # from the rounds of each sampled size
    def shape(self, size: Size) -> DrafterOverrides: ...
    def sizes(self) -> Iterable[Size]: ...
    def tokens(self, size: Size) -> float: ...  # expected a round
    def near(self, size: Size) -> Sequence[Size]: ...  # sizes to time, given the accuracy of tokens()


def tree_sizes(most: int = max(DEPTHS)) -> list[Size]:
    """All sizes of trees without a window, of `most` levels at most."""
    return [Size(nodes, levels) for levels in DEPTHS if levels <= most for nodes in SIZES if nodes >= levels]


def shallower(sizes: Sequence[Size], most: int) -> tuple[Size, ...]:
    """These sizes of trees with `most` levels at most; a single one has no more than WIDTH nodes."""
    return tuple(Size(size.nodes if most > 1 else min(size.nodes, WIDTH), min(size.levels, most)) for size in sizes)


@dataclass(frozen=True)
class Dynamic:
    """EAGLE-2's trees, whose nodes are sorted best first."""

    width: int = WIDTH
    rounds: Sequence[Round] = ()
    sampled: Sequence[Size] = SAMPLED  # the first has as many levels as a tree may have

    settings = frozenset({"tree"})

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Dynamic":
        return replace(self, rounds=runs[0])

    def shape(self, size: Size) -> DrafterOverrides:
        name = f"auto_eagle2_{size.nodes}_{size.levels}"
        return DrafterOverrides({"tree": Eagle2Tree(size.nodes, size.levels, min(size.nodes, self.width), name)})

    def sizes(self) -> list[Size]:
        width, sizes = self.width, tree_sizes(self.sampled[0].levels)
        return [size for size in sizes if size.nodes <= width + (size.levels - 1) * width**2]

    def tokens(self, size: Size) -> float:
        return tokens_of_first(self.rounds, size.nodes, size.levels)

    def near(self, size: Size) -> list[Size]:
        return [size]


@dataclass(frozen=True)
class Static:
    """The best static tree of each size, given how often each rank is followed."""

    chances: Chances = (SHARES,) * max(DEPTHS)
    sampled: Sequence[Size] = SAMPLED  # the first has as many levels as a tree may have

    settings = frozenset({"tree"})

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Static":
        return replace(self, chances=chances_by_rank(runs[0], self.tree(self.sampled[0]).paths))

    def tree(self, size: Size) -> StaticTree:
        """The best static tree of this size."""
        paths = best_paths(self.chances, size.nodes, size.levels)
        depth = max(map(len, paths))
        return StaticTree(paths, f"auto_chain_{depth}" if depth == len(paths) else f"auto_static_{len(paths)}_{depth}")

    def shape(self, size: Size) -> DrafterOverrides:
        return DrafterOverrides({"tree": self.tree(size)})

    def sizes(self) -> list[Size]:
        return tree_sizes(self.sampled[0].levels)

    def tokens(self, size: Size) -> float:
        return expected_tokens(self.chances, best_paths(self.chances, size.nodes, size.levels))

    def near(self, size: Size) -> list[Size]:
        return [size]


@dataclass(frozen=True)
class Windows:
    """Jacobi windows. A window commits less than the same part of a longer one, whose guesses have been refined more
    often, so that lengths about the estimate are timed. Side branches are not part of the estimate."""

    rounds: Sequence[Round] = ()

    settings = frozenset({"length"})
    sampled = (Size(0, 0, 24), Size(0, 0, 8))

    def learned(self, runs: Sequence[Sequence[Round]]) -> "Windows":
        return type(self)(runs[0])

    def shape(self, size: Size) -> DrafterOverrides:
        return DrafterOverrides({"length": size.window})

    def sizes(self) -> list[Size]:
        return [Size(0, 0, window) for window in WINDOWS if window <= self.sampled[0].window]

    def tokens(self, size: Size) -> float:
        return tokens_of_first(self.rounds, size.window, size.window)

    def near(self, size: Size) -> list[Size]:
        return neighbours(size)


@dataclass(frozen=True)
class BranchingWindows(Windows):
    """Windows with side branches, whose gain is timed, not estimated: none, one per four positions, one each."""

    settings = frozenset({"length", "branches"})

    def shape(self, size: Size) -> DrafterOverrides:
        return DrafterOverrides({"length": size.window, "branches": size.nodes})

    def near(self, size: Size) -> list[Size]:
        return [*neighbours(size), *(size._replace(nodes=nodes) for nodes in {max(1, size.window // 4), size.window})]


def neighbours(size: Size) -> list[Size]:
    """The size with its window, one two steps shorter, and one two steps longer."""
    index = WINDOWS.index(size.window)
    return [size._replace(window=WINDOWS[i]) for i in (index, index - 2, index + 2) if 0 <= i < len(WINDOWS)]
