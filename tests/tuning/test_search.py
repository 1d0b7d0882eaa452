"""Tree search against brute force over all trees, and its counts against rounds written down by hand."""

from itertools import combinations
from math import prod

import pytest

from lantern.trees.static import StaticTree
from lantern.tuning.search import best_paths, chances_by_rank
from lantern.types import Round

CHANCES = [[0.5, 0.3, 0.1], [0.6, 0.1, 0.05], [0.2, 0.2, 0.1]]


def turn(*paths: list[int]) -> Round:
    return Round(list(paths), 4, 1.0, 1.0, 1.0)


def expected_tokens(chances, paths) -> float:
    return 1 + sum(prod(chances[level][rank] for level, rank in enumerate(path)) for path in paths)


def every_tree(size: int, depth: int):
    """All prefix-closed, gap-free trees of `size` nodes, ranks below 3."""
    level, nodes = [()], []
    for _ in range(depth):
        level = [(*path, rank) for path in level for rank in range(3)]
        nodes += level
    for chosen in combinations(nodes, size):
        known = {*chosen, ()}
        if all(p[:-1] in known and (p[-1] == 0 or (*p[:-1], p[-1] - 1) in known) for p in chosen):
            yield chosen


@pytest.mark.parametrize(("size", "depth"), [(1, 1), (3, 1), (3, 2), (5, 2)])
def test_the_best_tree_is_the_best_of_all_trees(size, depth):
    """Catches a greedy choice that dynamic programming would beat."""
    found = best_paths(CHANCES, size, depth)
    StaticTree(found)  # raises unless it is one
    best = max(expected_tokens(CHANCES, tree) for tree in every_tree(size, depth))
    assert expected_tokens(CHANCES, found) == pytest.approx(best)
    assert len(found) == size


def test_nodes_that_are_never_reached_are_left_out():
    """Catches trees padded with nodes that cost and bring nothing."""
    assert best_paths([[0.5, 0.0]], size=4, depth=3) == [(0,)]


def test_chances_are_counted_where_a_parent_was_reached():
    """Nodes 1 … 4 are [0], [1], [0, 0], [1, 0]. Catches shares of all rounds in place of those that arrived."""
    rounds = [turn([0, 1, 3], [0, 1]), turn([0, 2, 4], [0])]
    found = chances_by_rank(rounds, [(0,), (1,), (0, 0), (1, 0)])
    assert found == [[2 / 4, 1 / 4], [2 / 3, 0.0]]
