"""Tree search against brute force over all trees."""

from itertools import combinations
from math import prod

import pytest

from lantern.trees.static import StaticTree
from lantern.tuning.auto import best_paths

CHANCES = [[0.5, 0.3, 0.1], [0.6, 0.1, 0.05], [0.2, 0.2, 0.1]]


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
