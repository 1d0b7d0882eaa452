"""Rules given by a law r that replaces the target's p at a node: a map (p, q, depth) -> r. Tokens are verified exactly
against r and so follow r: a bound on r is a bound on the output law at that node."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.acceptance.relaxed import relaxed
from lantern.errors import LanternError
from lantern.types import AcceptanceRule, DraftTree, Site


@runtime_checkable
class CommittedLaw(AcceptanceRule, Protocol):
    """An acceptance rule with a law of its own. depth: that of the judged children, 1 below the root."""

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor: ...  # [M, V], [M, V], [M] -> r [M, V]


def judge_by_own_law(rule: CommittedLaw, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
    """As AcceptanceRule.judge: a node's first child against r, later siblings exactly against the residual of r."""
    draft = point_mass(x, p) if q is None else q
    return relaxed(_law_where(site.rank == 0, rule, p, draft, site.depth), q, x)


def committed_laws(tree: DraftTree, probs: Tensor, q: Tensor, rule: AcceptanceRule) -> Tensor:
    """probs p [B, N, V], q [B, N, V] -> r at every node with children, p at the others [B, N, V].

    Whether a node has children must not depend on the noise that picks among them, or r would depend on that noise.
    """
    if rule.lossless:
        return probs
    if not isinstance(rule, CommittedLaw):
        raise LanternError(f"acceptance={rule.name} judges single tokens and has no law; use verification=ratio")
    is_child = tree.parents[:, None] == torch.arange(tree.parents.shape[1], device=probs.device)[:, None]
    has_children = is_child.any(-1).flatten()
    laws = _law_where(has_children, rule, probs.flatten(0, 1), q.flatten(0, 1), tree.depths.flatten() + 1)
    return laws.view_as(probs)


def _law_where(wanted: Tensor, rule: CommittedLaw, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
    """r in rows where `wanted` [M], p in the others [M, V]."""
    if not p.is_cpu:  # selecting rows would synchronise with the device
        return torch.where(wanted[:, None], rule.law(p, q, depth), p)
    rows = wanted.nonzero()[:, 0]
    return p.index_copy(0, rows, rule.law(p[rows], q[rows], depth[rows])) if len(rows) else p


def point_mass(x: Tensor, like: Tensor) -> Tensor:  # [...], [..., V] -> [..., V]
    """The draft law of a chosen token x."""
    return torch.zeros_like(like).scatter_(-1, x[..., None], 1)
