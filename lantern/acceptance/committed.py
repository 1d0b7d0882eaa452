"""Rules given by the law r that they commit at a node in the target's place, whatever is drafted there: a map
(p, q, depth) -> r. Verifying r exactly commits r, so that what bounds r bounds the output at that node."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.acceptance.relaxed import relaxed
from lantern.types import DraftTree, Site


@runtime_checkable
class CommittedLaw(Protocol):
    """An acceptance rule with a law of its own. Depth is that of the judged children, 1 at the root's."""

    lossless: bool

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor: ...  # [M, V], [M, V], [M] -> r [M, V]
    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]: ...


def judged_against(
    rule: CommittedLaw, p: Tensor, q: Tensor | None, x: Tensor, site: Site
) -> tuple[Tensor, Tensor]:  # as AcceptanceRule.judge
    """A node's first child is judged against r, later siblings exactly against what r has left."""
    draft = point_mass(x, p) if q is None else q
    return relaxed(_law_where(site.rank == 0, rule, p, draft, site.depth), q, x)


def committed_laws(tree: DraftTree, probs: Tensor, q: Tensor, rule: CommittedLaw) -> Tensor:
    """probs p [B, N, V], q [B, N, V] -> r at every node that has children, p at the others [B, N, V].

    Whether a node has children may not depend on the noise that picks among them, or r would follow that noise.
    """
    if rule.lossless:
        return probs
    is_child = tree.parents[:, None] == torch.arange(tree.parents.shape[1], device=probs.device)[:, None]
    has_children = is_child.any(-1).flatten()
    laws = _law_where(has_children, rule, probs.flatten(0, 1), q.flatten(0, 1), tree.depths.flatten() + 1)
    return laws.view_as(probs)


def _law_where(wanted: Tensor, rule: CommittedLaw, p: Tensor, q: Tensor, depth: Tensor) -> Tensor:
    """r in the wanted rows [M], p in the others [M, V]."""
    if not p.is_cpu:  # which they are would have to be waited for
        return torch.where(wanted[:, None], rule.law(p, q, depth), p)
    rows = wanted.nonzero()[:, 0]
    return p.index_copy(0, rows, rule.law(p[rows], q[rows], depth[rows])) if len(rows) else p


def point_mass(x: Tensor, like: Tensor) -> Tensor:  # [...], [..., V] -> [..., V]
    """The law from which a chosen token x was drawn."""
    return torch.zeros_like(like).scatter_(-1, x[..., None], 1)
