"""The static tree of a size and depth that commits most tokens, given how often each rank is followed."""

import heapq
from collections.abc import Iterable, Sequence

from lantern.trees.static import StaticTree
from lantern.types import Round

Path = tuple[int, ...]
Chances = Sequence[Sequence[float]]  # [depth][rank]
SHARES = (0.5, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02, 0.01)  # assumed chances by rank, at every depth


def chances_by_rank(rounds: Iterable[Round], paths: Sequence[Path]) -> list[list[float]]:
    """[parent's depth][rank]: how often a child of this rank is accepted once its parent is reached, in rounds decoded
    with the static tree of these paths. Values are made non-increasing in the rank, as they are up to noise."""
    numbers = [(), *paths]
    width, depth = 1 + max(path[-1] for path in paths), max(map(len, paths))
    num_children = {number: sum(path[:-1] == number for path in paths) for number in numbers}
    reached = [[0] * width for _ in range(depth)]
    followed = [[0] * width for _ in range(depth)]
    for accepted in (path for record in rounds for path in record.paths):
        for node in accepted:
            for rank in range(num_children[numbers[node]]):
                reached[len(numbers[node])][rank] += 1
        for path in (numbers[node] for node in accepted[1:]):
            followed[len(path) - 1][path[-1]] += 1
    shares = [
        [f / r if r else 0.0 for f, r in zip(*level, strict=True)] for level in zip(followed, reached, strict=True)
    ]
    return [[min(level[: rank + 1]) for rank in range(width)] for level in shares]


def best_paths(chances: Chances, size: int, depth: int) -> list[Path]:
    """The tree of at most `size` draft nodes and `depth` levels that is expected to commit most. A node adds its chance
    of being reached, a product along its path. No child or later sibling exceeds it, so the best nodes, taken one by
    one, form a tree; Sequoia (2402.12374) finds the same tree by dynamic programming."""
    waiting: list[tuple[float, Path, float]] = [(-chances[0][0], (0,), 1.0)]  # worth, path, its parent's worth
    found: list[Path] = []
    while waiting and len(found) < size:
        worth, path, above = heapq.heappop(waiting)
        if worth == 0:
            break
        found.append(path)
        level, rank = len(path), path[-1] + 1
        if rank < len(chances[level - 1]):
            heapq.heappush(waiting, (-above * chances[level - 1][rank], (*path[:-1], rank), above))
        if level < min(depth, len(chances)):
            heapq.heappush(waiting, (worth * chances[level][0], (*path, 0), -worth))
    return found or [(0,)]  # a tree has a node even if none is ever followed


def best_tree(chances: Chances, size: int, depth: int) -> StaticTree:
    """The tree of best_paths, named by its size."""
    paths = best_paths(chances, size, depth)
    levels = max(map(len, paths))
    return StaticTree(paths, f"auto_chain_{levels}" if levels == len(paths) else f"auto_static_{len(paths)}_{levels}")
