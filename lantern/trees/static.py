"""Static draft trees: a list of paths of child ranks, the same every round (Medusa, 2401.10774; EAGLE, 2401.15077).
A chain is the static tree of one path."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lantern.errors import LanternError, check_whole, is_whole
from lantern.runtime.memory import check_nodes
from lantern.types import PADDING, DraftTree, Expand, Proposals, TreeTopology

MAX_LOG_RATIO = 60  # nats


def drop_negligible(log_q: Tensor) -> Tensor:
    """Drops codes with less than e^-60 of the best code's probability, from log_q [..., V]. In float32 they vanish from
    q, and verification would divide by 0 once the best code is rejected."""
    return log_q.masked_fill(log_q < log_q.amax(-1, keepdim=True) - MAX_LOG_RATIO, -torch.inf)


class StaticTree:
    """A TreePolicy that grows level by level: one drafter forward per level, for the nodes with children.

    If top_k or top_p keeps fewer codes than a node has children, the surplus children become padding where
    verification reads q. Under shared noise they stay, so that the tree keeps its topology: an exact rule judges any
    child correctly, but a Relaxation may commit such a code, although p = q = 0.
    """

    def __init__(self, paths: Sequence[Sequence[int]], name: str = "static") -> None:
        """paths: one per node below the root, e.g. [[0], [1], [0, 0]]."""
        self.name, self.kind, self.paths = name, "static", _check_paths(paths)
        self.num_nodes, self.depth = len(self.paths) + 1, max(map(len, self.paths))
        self.num_expanded = len({path[:-1] for path in self.paths})
        numbers = {path: number for number, path in enumerate([(), *self.paths])}
        self._topology = TreeTopology.of((-1, *(numbers[path[:-1]] for path in self.paths)), torch.device("cpu"))
        self._levels = [_Level(depth, self.paths, numbers) for depth in range(self.depth)]
        self.width = max(level.width for level in self._levels)

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: Proposals) -> DraftTree:
        if self._topology.parents.device != roots.device:
            self._topology = TreeTopology.of(tuple(self._topology.parents.tolist()), roots.device)
            for level in self._levels:
                level.move(roots.device)
        batch, most = len(roots), int(tokens_left.max())
        tokens = roots.new_zeros(batch, self.num_nodes)
        tokens[:, 0] = roots
        fits = int(tokens_left.min()) > self.depth
        is_complete = fits and (self.width < 2 or not proposals.needs_draft_law)  # a chain loses no node: see `lost`
        parents = self._topology.parents.repeat(batch, 1) if fits else self._topology.cut_to(tokens_left)
        laws = None
        for level in self._levels:
            if level.depth + 1 >= most:
                break
            log_q = expand(tokens[:, level.nodes], level.expansions.expand(batch, -1), level.depth)
            log_q = drop_negligible(log_q) if proposals.needs_draft_law else log_q
            best = proposals.sample_scores(log_q, level.nodes, level.depth).topk(level.width, dim=-1)
            tokens[:, level.children] = best.indices.flatten(1).index_select(1, level.picks)
            if proposals.needs_draft_law:
                lost = best.values.flatten(1).index_select(1, level.picks) == -torch.inf
                lost |= parents[:, level.above] == PADDING
                parents[:, level.children] = parents[:, level.children].masked_fill(lost, PADDING)
                laws = log_q.new_zeros(batch, self.num_nodes, log_q.shape[-1]) if laws is None else laws
                laws[:, level.nodes] = log_q.softmax(-1)
        return DraftTree(tokens, parents, laws, self._topology if is_complete else None, self.width)


class _Level:
    """Index tensors of one depth: the nodes expanded there and their children's nodes."""

    def __init__(self, depth: int, paths: list[tuple[int, ...]], numbers: dict[tuple[int, ...], int]) -> None:
        self.depth = depth
        root: list[tuple[int, ...]] = [()]
        inner = [root] + [sorted({p[:d] for p in paths if len(p) == d + 1}) for d in range(1, depth + 1)]
        below = [path for path in paths if len(path) == depth + 1]
        self.width = 1 + max(path[-1] for path in below)
        self.nodes = torch.tensor([numbers[path] for path in inner[depth]])
        self.children = slice(numbers[below[0]], numbers[below[-1]] + 1)  # nodes are ordered by level
        self.above = torch.tensor([numbers[path[:-1]] for path in below])
        self.picks = torch.tensor([inner[depth].index(path[:-1]) * self.width + path[-1] for path in below])
        order = [path for level in inner for path in level]  # the order of expansion
        self.expansions = torch.tensor([order.index(path[:-1]) if path else -1 for path in inner[depth]])

    def move(self, device: torch.device) -> None:
        for name in ("nodes", "above", "picks", "expansions"):
            setattr(self, name, getattr(self, name).to(device))


def _check_paths(paths: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The paths by depth, siblings in order of rank."""
    is_nested = isinstance(paths, Sequence) and all(isinstance(path, Sequence) for path in paths)
    given = [tuple(path) for path in paths] if is_nested else []
    check_nodes(len(given), "tree.paths")
    known = set(given)
    if not given or len(known) < len(given) or () in known:
        raise LanternError(f"tree.paths={paths!r} is no list of distinct, non-empty paths of child ranks; give one")
    for path in given:
        if not all(is_whole(rank) and rank >= 0 for rank in path):
            raise LanternError(f"tree.paths has {list(path)}, which is no list of ranks; give 0, 1, 2 …")
        if len(path) > 1 and path[:-1] not in known:
            raise LanternError(f"tree.paths has {list(path)} without its prefix {list(path[:-1])}; add it")
        if path[-1] > 0 and (*path[:-1], path[-1] - 1) not in known:
            earlier = [*path[:-1], path[-1] - 1]
            raise LanternError(f"tree.paths has {list(path)} without its earlier sibling {earlier}; add it")
    return sorted(given, key=lambda path: (len(path), path))


def chain(length: int) -> StaticTree:
    """length draft tokens in a row, each the rank-0 child of the one before."""
    check_whole("tree", 1, length=length)
    check_nodes(length, f"tree.length={length}")
    return StaticTree([[0] * depth for depth in range(1, length + 1)], name=f"chain{length}")
