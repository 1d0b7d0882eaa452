"""Rules that lend a token the probability of other tokens of its round (lantern.types.RoundReader)."""

from copy import copy
from typing import Self

import torch
from torch import Tensor

from lantern.acceptance.relaxed import relaxed
from lantern.errors import LanternError
from lantern.types import DraftTree, Site


class Pooling:
    """Between of_round() and the round's end: the node i is lent the share [i, j] of the probability of j's token."""

    name: str
    verification = "ratio"  # by default
    moves: bool  # whether what is lent is taken from the others, and missing in the residual
    _tokens: Tensor | None = None  # [B, N]
    _shares: Tensor  # [B, N, N]

    def shares(self, tree: DraftTree, features: Tensor) -> Tensor:
        """-> [B, N, N], 0 on the diagonal; features [B, R, N, D]."""
        raise NotImplementedError

    def of_round(self, tree: DraftTree, features: Tensor) -> Self:
        bound = copy(self)
        bound._tokens, bound._shares = tree.tokens, self.shares(tree, features)
        return bound

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        if self._tokens is None or site.node is None:
            raise LanternError(f"acceptance={self.name} judges the nodes of a round, and is given none; decode with it")
        size, index = self._tokens.shape[1], x[:, None]
        others, shares = self._tokens[site.node // size], self._shares.flatten(0, 1)[site.node]
        lent = p.gather(1, others) * shares.to(p.dtype)
        raised = p.scatter_add(1, index, lent.sum(1, keepdim=True))
        if self.moves:
            return relaxed(raised.scatter_add(1, others, -lent).clamp(min=0), q, x)
        return relaxed(raised, q, x)[0], relaxed(p, q, x)[1]


def apart(tree: DraftTree) -> Tensor:
    """[B, N, N] true for two nodes that are not the same one; padding lends nothing."""
    itself = torch.eye(tree.parents.shape[1], dtype=torch.bool, device=tree.parents.device)
    return ~itself & ~tree.is_padding[:, None]
