"""Draft trees [B, N]: their tokens and parents, and what follows from these. Letters as in lantern/types.py."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

PADDING = -2  # the parent of a node that is not there


@dataclass(frozen=True, eq=False)
class TreeTopology:
    """The parents of a tree without padding that all rows share, and what is derived from them, cached."""

    parents: Tensor  # [N]
    ancestors: Tensor  # [N, N] as DraftTree's
    depths: Tensor  # [N]
    paths: Tensor  # [N, A] from the root to each node, padded with -1
    width: int  # children of a node, at most

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, parents: tuple[int, ...], device: torch.device) -> "TreeTopology":
        """The cached topology of these parents [N]."""
        node_paths: list[list[int]] = []
        for node, parent in enumerate(parents):
            node_paths.append([*(node_paths[parent] if node else []), node])
        longest = max(map(len, node_paths))
        paths = torch.tensor([path + [-1] * (longest - len(path)) for path in node_paths], device=device)
        places = paths.where(paths >= 0, len(parents))  # no [N, A, N] in between
        ancestors = paths.new_zeros(len(parents), len(parents) + 1).bool().scatter_(1, places, True)[:, :-1]
        width = max(map(parents.count, set(parents) - {-1}), default=0)
        return cls(torch.tensor(parents, device=device), ancestors, ancestors.sum(-1) - 1, paths, width)

    @classmethod
    def chain(cls, length: int, device: torch.device) -> "TreeTopology":
        """The root and `length` draft tokens in a row."""
        return cls.of(tuple(range(-1, length)), device)

    def cut_to(self, tokens_left: Tensor) -> Tensor:
        """tokens_left [B] -> parents [B, N]; a node at depth >= tokens_left becomes padding: no token may follow it."""
        parents = self.parents.masked_fill(self.depths >= tokens_left.to(self.parents.device)[:, None], PADDING)
        parents[:, 0] = -1
        return parents

    def tree(self, tokens: Tensor, draft_probs: Tensor | None = None) -> "DraftTree":  # tokens [B, N]
        return DraftTree(tokens, self.parents.expand(len(tokens), -1), draft_probs, self, self.width)


@dataclass(frozen=True)
class DraftTree:
    """Draft tokens of one round. Node 0 is the last committed token; a parent precedes its children."""

    tokens: Tensor  # [B, N, ...] codebook indices, or latents [B, N, C]
    parents: Tensor  # [B, N] -1 at node 0; parents[:, i] < i; PADDING for a node that is not there
    # [B, N, V] q from which a node's children were drawn, in order; latents: conditions; None: chosen (point masses)
    draft_probs: Tensor | None = None
    topology: TreeTopology | None = None  # if all rows are known to have it
    width: int | None = None  # children of a node, at most, if known

    @cached_property
    def ancestors(self) -> Tensor:
        """[B, N, N] true where node j lies on the path from the root to node i, both included; padding: only itself."""
        if self.topology:
            return self.topology.ancestors.expand(len(self.tokens), -1, -1)
        n = self.tokens.shape[1]
        reach = torch.zeros(len(self.parents), n, n, dtype=torch.float32, device=self.parents.device)
        reach.scatter_(2, self.parents.clamp(min=0)[..., None], (self.parents >= 0).float()[..., None])
        reach += torch.eye(n, device=reach.device)
        for _ in range(max(1, (n - 1).bit_length())):  # squaring doubles the path length that is covered
            reach = (reach @ reach).clamp(max=1)
        return reach.bool()

    @cached_property
    def depths(self) -> Tensor:
        """[B, N] edges between the root and a node; 0 for padding."""
        return self.topology.depths.expand(len(self.tokens), -1) if self.topology else self.ancestors.sum(-1) - 1

    def path_to(self, leaves: Tensor) -> Tensor:
        """leaves [B] -> the nodes from the root to each [B, A], padded with -1."""
        if self.topology:
            return self.topology.paths[leaves]
        size = self.tokens.shape[1]
        on_path = self.ancestors.gather(1, leaves[:, None, None].expand(-1, 1, size))[:, 0]
        order = torch.arange(size, device=leaves.device).masked_fill(~on_path, size).sort(1).values
        return order.masked_fill(order == size, -1)

    @property
    def is_padding(self) -> Tensor:
        """[B, N] nodes that are not there."""
        return self.parents == PADDING
