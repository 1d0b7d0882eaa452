"""Structural tokens in tree passes. At the end of each image row these models read a token that is neither drafted nor
verified: it lies between a node and its children, whose law is predicted at it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lantern.types import PADDING, DraftTree, Verdict


@dataclass(frozen=True)
class StructuredTree:
    """A tree with E structural nodes behind its N nodes, M = N + E in all."""

    attends: Tensor  # [B, M, M] attention mask: ancestors, structural ones included, and the node itself
    hosts: Tensor  # [B, E] the node that each structural node follows
    exists: Tensor  # [B, E] false where a row of the batch has fewer of them

    @cached_property
    def depths(self) -> Tensor:
        """[B, M] tokens between the root and a node, structural ones counted."""
        return self.attends.sum(-1) - 1

    @cached_property
    def last(self) -> Tensor:
        """[B, N] the node at which the law behind each node is predicted: itself, or its structural node."""
        batch, extra = self.hosts.shape
        nodes = self.attends.shape[1] - extra
        own = torch.arange(nodes, device=self.hosts.device).repeat(batch, 1)
        behind = torch.arange(nodes, nodes + extra, device=self.hosts.device).expand(batch, -1)
        return own.scatter(1, self.hosts, torch.where(self.exists, behind, self.hosts))

    def expand(self, verdict: Verdict) -> Verdict:
        """The accepted path with its structural nodes, each after its host."""
        path = verdict.path
        behind = self.last.gather(1, path.clamp(min=0))
        behind = behind.masked_fill((behind == path) | (path < 0), -1)
        both = torch.stack([path, behind], dim=2).flatten(1)
        order = (both < 0).int().argsort(dim=1, stable=True)
        kept = both.gather(1, order)
        return Verdict(kept, (kept >= 0).sum(1) - 1, verdict.next_token)


def with_row_ends(
    tree: DraftTree, first: Tensor, counts: list[int], width: int, num_tokens: int,
    padded: Callable[[int], int] = lambda extra: extra,
) -> StructuredTree:  # fmt: skip
    """first [B]: position of the root in the image; counts: the same on the host; width: of an image row; padded: from
    the structural nodes of a batch to how many are computed, N at most."""
    nodes, attends = tree.tokens.shape[1], tree.ancestors
    none = torch.zeros(len(attends), 0, dtype=torch.long, device=attends.device)
    longest = tree.topology.paths.shape[1] if tree.topology else nodes  # nodes of a path, known without a wait
    first_ends = [(count, (count // width + 1) * width) for count in counts]  # of an image row
    if not any(end <= count + longest and end < num_tokens for count, end in first_ends):
        return StructuredTree(attends, none, none.bool())
    positions = first[:, None] + tree.depths + 1  # of the children
    ends = (positions % width == 0) & (positions < num_tokens) & (tree.parents != PADDING)  # [B, N]
    extra = int(ends.sum(1).max())
    if not extra:
        return StructuredTree(attends, none, none.bool())
    extra = padded(extra)
    hosts = ends.int().argsort(dim=1, descending=True, stable=True)[:, :extra]
    exists = ends.gather(1, hosts)
    below = attends.gather(2, hosts[:, None].expand(-1, nodes, -1)) & exists[:, None]  # [B, N, E] hosts attended to
    own = torch.arange(nodes, device=attends.device)[None, :, None] == hosts[:, None]
    of_hosts = hosts[..., None]
    top = torch.cat([attends, below & ~own], dim=2)
    parts = [part.gather(1, of_hosts.expand(-1, -1, part.shape[2])) for part in (attends, below)]
    bottom = torch.cat(parts, dim=2)
    joined = torch.cat([top, bottom], dim=1)
    return StructuredTree(joined | torch.eye(nodes + extra, dtype=torch.bool, device=attends.device), hosts, exists)


def host_paths(paths: list[list[int]], counts: list[int], width: int, num_tokens: int) -> list[list[int]]:
    """StructuredTree.expand's accepted paths on the host, without asking the device: -1 stands for structural nodes.
    counts: image position of each root."""
    expanded = []
    for path, count in zip(paths, counts, strict=True):
        nodes = []
        for position, node in enumerate(path, start=count + 1):  # of the node's children
            nodes += [node, -1] if position % width == 0 and position < num_tokens else [node]
        expanded.append(nodes)
    return expanded
