"""Which draft tree commits most tokens a second on this device: what trees of each size and depth commit is read off
one decoding run with a large tree, what their rounds cost is measured, and the best quotient wins."""

import heapq
from collections.abc import Iterable, Sequence
from math import prod

from lantern.types import Round

Path = tuple[int, ...]
Chances = Sequence[Sequence[float]]  # [depth][rank]


def chances_by_rank(rounds: Iterable[Round], paths: Sequence[Path]) -> list[list[float]]:
    """How often the child of each rank is followed where its parent was reached, by the parent's depth, over rounds
    decoded with the static tree of these paths. Made to fall with the rank, which it does but for noise."""
    numbers = [(), *paths]
    width, depth = 1 + max(path[-1] for path in paths), max(map(len, paths))
    num_children = {number: sum(path[:-1] == number for path in paths) for number in numbers}
    asked = [[0] * width for _ in range(depth)]
    taken = [[0] * width for _ in range(depth)]
    for accepted in (path for turn in rounds for path in turn.paths):
        for node in accepted:
            for rank in range(num_children[numbers[node]]):
                asked[len(numbers[node])][rank] += 1
        for path in (numbers[node] for node in accepted[1:]):
            taken[len(path) - 1][path[-1]] += 1
    shares = [[t / a if a else 0.0 for t, a in zip(*level, strict=True)] for level in zip(taken, asked, strict=True)]
    return [[min(level[: rank + 1]) for rank in range(width)] for level in shares]


def best_paths(chances: Chances, size: int, depth: int) -> list[Path]:
    """The tree of at most `size` draft nodes and `depth` levels that is expected to commit most. A node adds its chance
    of being reached, a product along its path that neither a child nor a younger sibling exceeds, so that the best
    nodes, taken one by one, form a tree; Sequoia (2402.12374) finds the same tree by dynamic programming."""
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
    return found or [(0,)]  # where nothing is ever followed a tree has a node all the same


def expected_tokens(chances: Chances, paths: Iterable[Path]) -> float:
    """Tokens a round commits with a static tree, the bonus token included."""
    return 1 + sum(prod(chances[level][rank] for level, rank in enumerate(path)) for path in paths)


def tokens_of_first(rounds: Iterable[Round], size: int, depth: int) -> float:
    """Tokens a round would have committed with the first `size` nodes and `depth` levels of the trees of these rounds,
    whose nodes stand best first."""
    paths = [path for turn in rounds for path in turn.paths]
    return 1 + sum(sum(node <= size for node in path[1 : depth + 1]) for path in paths) / len(paths)
