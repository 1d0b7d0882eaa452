"""Laws that depend on the path to a node alone, the paths of a grown tree, and a beam by brute force."""

from itertools import count

import torch
from torch import Tensor

from lantern.types import PADDING, DraftTree


class PathLaws:
    """q of a path, a function of the path and a seed; records the paths in order of expansion."""

    def __init__(self, codes: int, seed: int, zeros: float = 0.0) -> None:
        self.codes, self.seed, self.zeros, self.paths = codes, seed, zeros, None

    def law(self, path: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, *path)) % 2**31)
        logits = 2 * torch.randn(self.codes, generator=generator, dtype=torch.float64)
        gone = torch.rand(self.codes, generator=generator) < self.zeros
        return logits.masked_fill(gone & (logits < logits.max()), -torch.inf).softmax(-1)

    def __call__(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        rows = range(len(tokens))
        if depth == 0:
            self.paths = [[(int(tokens[row, 0]),)] for row in rows]
            new = self.paths
        else:
            parents = parents.expand(len(tokens), -1).tolist()
            pairs = [zip(tokens[row].tolist(), parents[row], strict=True) for row in rows]
            new = [[(*self.paths[row][parent], token) for token, parent in pairs[row]] for row in rows]
            self.paths = [old + added for old, added in zip(self.paths, new, strict=True)]
        return torch.stack([torch.stack([self.law(path) for path in row]) for row in new]).log()


def paths_of(tree: DraftTree, row: int) -> list[tuple[int, ...]]:
    """The tokens on the way to each node that is there, the root's included, in the order of the nodes."""
    found: dict[int, tuple[int, ...]] = {}
    for node, (token, parent) in enumerate(zip(tree.tokens[row].tolist(), tree.parents[row].tolist(), strict=True)):
        if parent != PADDING:
            found[node] = (*found[parent], token) if node else (token,)
    return list(found.values())


def brute_force_beam(laws: PathLaws, root: int, total: int, depth: int, width: int) -> set[tuple[int, ...]]:
    """EAGLE-2 in plain Python: expand the best `width` paths of a level by their best `width` codes, keep the best."""
    order, beam, grown = count(), [(0.0, 0, (root,))], []
    for _ in range(depth):
        level = []
        for score, _, path in beam:
            law = laws.law(path).log()
            best = sorted(range(laws.codes), key=lambda code: -float(law[code]))[:width]
            best = [code for code in best if law[code] > -torch.inf]
            level += [(score + float(law[code]), -next(order), (*path, code)) for code in best]
        beam = sorted(level, reverse=True)[:width]
        grown += level
    return {(root,), *(path for _, _, path in sorted(grown, reverse=True)[:total])}
