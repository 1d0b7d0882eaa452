"""Rules that lend a token the probability of other tokens of its round (lantern.types.RoundReader)."""

from typing import NamedTuple

import torch
from torch import Tensor

from lantern.acceptance.relaxed import relaxed
from lantern.errors import LanternError
from lantern.types import DraftTree, Site


class Lent(NamedTuple):
    """What nodes borrow in a round: node i borrows the share [i, j] of the probability of node j's token."""

    tokens: Tensor  # [B, N]
    shares: Tensor  # [B, N, N], 0 on the diagonal


def apart(tree: DraftTree) -> Tensor:
    """[B, N, N] true where i and j are different nodes and j is no padding, since padding lends nothing."""
    itself = torch.eye(tree.parents.shape[1], dtype=torch.bool, device=tree.parents.device)
    return ~itself & ~tree.is_padding[:, None]


def judge_by_lent_mass(
    name: str, lent: Lent | None, moves: bool, p: Tensor, q: Tensor | None, x: Tensor, site: Site
) -> tuple[Tensor, Tensor]:  # as AcceptanceRule.judge
    """moves: whether lent mass is taken away from its lenders, so that the residual lacks it there."""
    if lent is None or site.node is None:
        raise LanternError(f"acceptance={name} judges the nodes of a round, and is given none; decode with it")
    size, index = lent.tokens.shape[1], x[:, None]
    others, shares = lent.tokens[site.node // size], lent.shares.flatten(0, 1)[site.node]
    mass = p.gather(1, others) * shares.to(p.dtype)
    raised = p.scatter_add(1, index, mass.sum(1, keepdim=True))
    if moves:
        return relaxed(raised.scatter_add(1, others, -mass).clamp(min=0), q, x)
    return relaxed(raised, q, x)[0], relaxed(p, q, x)[1]
