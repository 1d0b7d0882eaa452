"""Structural tokens in tree passes. Where an image's rows end, these models read a token that is not drafted and not
verified: it stands between a node and its children, and what is predicted behind the node is read off it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lantern.types import PADDING, DraftTree, Verdict


@dataclass(frozen=True)
class Walk:
    """A tree with E structural nodes behind its N nodes, M = N + E in all."""

    sees: Tensor  # [B, M, M] which of each other they see, themselves included
    hosts: Tensor  # [B, E] the node that a structural node stands behind
    exists: Tensor  # [B, E] false where a row of the batch has fewer of them

    @cached_property
    def depths(self) -> Tensor:
        """[B, M] tokens between the root and a node, structural ones counted."""
        return self.sees.sum(-1) - 1

    @cached_property
    def last(self) -> Tensor:
        """[B, N] where the prediction behind each node is read: at itself, or at the structural node behind it."""
        batch, extra = self.hosts.shape
        nodes = self.sees.shape[1] - extra
        own = torch.arange(nodes, device=self.hosts.device).repeat(batch, 1)
        behind = torch.arange(nodes, nodes + extra, device=self.hosts.device).expand(batch, -1)
        return own.scatter(1, self.hosts, torch.where(self.exists, behind, self.hosts))

    def expand(self, verdict: Verdict) -> Verdict:
        """The accepted path with its structural nodes, each behind its host."""
        path = verdict.path
        behind = self.last.gather(1, path.clamp(min=0))
        behind = behind.masked_fill((behind == path) | (path < 0), -1)
        both = torch.stack([path, behind], dim=2).flatten(1)
        order = (both < 0).int().argsort(dim=1, stable=True)
        kept = both.gather(1, order)
        return Verdict(kept, (kept >= 0).sum(1) - 1, verdict.token)


def walk(tree: DraftTree, first: Tensor, counts: list[int], width: int, num_tokens: int) -> Walk:
    """first [B]: the image token that the root is, 0 for the first; counts: the same on the host; width: of a row."""
    nodes, sees = tree.tokens.shape[1], tree.ancestors
    none = torch.zeros(len(sees), 0, dtype=torch.long, device=sees.device)
    if not any(_ends_within(count, nodes, width, num_tokens) for count in counts):
        return Walk(sees, none, none.bool())
    cells = first[:, None] + tree.depths + 1
    ends = (cells % width == 0) & (cells < num_tokens) & (tree.parents != PADDING)  # [B, N]
    extra = int(ends.sum(1).max())
    hosts = ends.int().argsort(dim=1, descending=True, stable=True)[:, :extra]
    exists = ends.gather(1, hosts)
    below = sees.gather(2, hosts[:, None].expand(-1, nodes, -1)) & exists[:, None]  # [B, N, E] hosts seen
    own = torch.arange(nodes, device=sees.device)[None, :, None] == hosts[:, None]
    of_hosts = hosts[..., None]
    top = torch.cat([sees, below & ~own], dim=2)
    bottom = torch.cat(
        [sees.gather(1, of_hosts.expand(-1, -1, nodes)), below.gather(1, of_hosts.expand(-1, -1, extra))], dim=2
    )
    joined = torch.cat([top, bottom], dim=1)
    return Walk(joined | torch.eye(nodes + extra, dtype=torch.bool, device=sees.device), hosts, exists)


def _ends_within(count: int, nodes: int, width: int, num_tokens: int) -> bool:
    """Whether a row may end at one of the tokens count … count + nodes - 1, the image's last row not asked."""
    end = (count // width + 1) * width
    return end <= count + nodes and end < num_tokens
