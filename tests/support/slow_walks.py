"""Both verifications once more, one row at a time, in plain Python lists: the slow obvious twins of the tensor code.
A tree is tokens, parents and q (a list a node, or None); laws are lists of V numbers."""

from collections.abc import Callable, Sequence
from math import log

Law = list[float]


def argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda index: (values[index], -index))


def children_of(parents: list[int], node: int) -> list[int]:
    return [child for child in range(len(parents)) if parents[child] == node]


def absorb(p: Law, x: int, neighbours: list[int], budget: float) -> Law:
    """x takes the mass of its nearest neighbours as long as the sum stays within the budget."""
    taken, law = 0.0, list(p)
    for code in neighbours:
        if taken + p[code] > budget:
            break
        taken += p[code]
        law[code] -= p[code]
    law[x] += taken
    return law


def ratio_walk(
    tokens: list[int],
    parents: list[int],
    q: list[Law] | None,
    p: list[Law],
    relax: Callable[[Law, int], Law],
    coins: Sequence[float],
    gumbel: Sequence[float],
) -> tuple[list[int], int]:
    """-> path of accepted nodes, the root first, and the recovered or bonus token. coins[node] in [0, 1)."""
    path, law = [0], p[0]
    while True:
        law, left = list(p[path[-1]]), list(q[path[-1]]) if q else None
        followed = None
        for child in children_of(parents, path[-1]):
            x = tokens[child]
            p_tilde = relax(law, x)
            draft = left if left is not None else [float(code == x) for code in range(len(law))]
            if coins[child] * draft[x] < p_tilde[x]:
                followed = child
                break
            rest = [max(a - b, 0.0) for a, b in zip(p_tilde, draft, strict=True)]
            if left is None:
                rest = [0.0 if code == x else mass for code, mass in enumerate(p_tilde)]
            law = [mass / sum(rest) for mass in rest] if sum(rest) > 0 else p_tilde
            if left is not None:
                left[x] = 0.0
                left = [mass / sum(left) for mass in left] if sum(left) > 0 else left
        if followed is None:
            return path, argmax([log(mass) + g if mass > 0 else -1e9 for mass, g in zip(law, gumbel, strict=True)])
        path.append(followed)


def shared_walk(
    tokens: list[int], parents: list[int], p: list[Law], relax: Callable[[Law, int], Law], gumbel: list[Sequence[float]]
) -> tuple[list[int], int]:
    """-> path and token. gumbel by depth. The longest path whose every child is picked; of several the one whose last
    node is the earliest."""

    def pick(law: Law, depth: int) -> int:
        return argmax([log(m) + g if m > 0 else -1e9 for m, g in zip(law, gumbel[depth], strict=True)])

    def longest(path: list[int]) -> list[int]:
        node, depth = path[-1], len(path) - 1
        children = children_of(parents, node)
        followed = [child for child in children if pick(relax(p[node], tokens[child]), depth) == tokens[child]]
        return max([path, *(longest([*path, child]) for child in followed)], key=lambda found: (len(found), -found[-1]))

    best = longest([0])
    return best, pick(p[best[-1]], len(best) - 1)
