"""Rules given by the law r that they commit at a node in the target's place, whatever is drafted there: a map
(p, q, depth) -> r. Verifying r exactly commits r, so that what bounds r bounds the output at that node."""

from typing import Protocol

import torch
from torch import Tensor

from lantern.acceptance.relaxed import relaxed
from lantern.types import DraftTree, Site


class CommittedLaw(Protocol):
    """An acceptance rule with a law of its own. Depth is that of the judged children, 1 at the root's."""

    lossless: bool

    def law(self, p: Tensor, q: Tensor, depth: Tensor) -> Tensor: ...  # [M, V], [M, V], [M] -> r [M, V]
    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]: ...


def judged_against(
    rule: CommittedLaw, p: Tensor, q: Tensor | None, x: Tensor, site: Site
) -> tuple[Tensor, Tensor]:  # as AcceptanceRule.judge
    """A node's first child is judged against r, later siblings exactly against what r has left."""
    first = (site.rank == 0).nonzero()[:, 0]
    if len(first):
        draft = point_mass(x[first], p[first]) if q is None else q[first]
        p = p.index_copy(0, first, rule.law(p[first], draft, site.depth[first]))
    return relaxed(p, q, x)


def committed_laws(tree: DraftTree, probs: Tensor, q: Tensor, rule: CommittedLaw) -> Tensor:
    """probs p [B, N, V], q [B, N, V] -> r at every node that has children, p at the others [B, N, V].

    Whether a node has children may not depend on the noise that picks among them, or r would follow that noise.
    """
    if rule.lossless:
        return probs
    is_child = tree.parents[:, None] == torch.arange(tree.parents.shape[1], device=probs.device)[:, None]
    rows, nodes = is_child.any(-1).nonzero(as_tuple=True)
    laws = probs.clone()
    laws[rows, nodes] = rule.law(probs[rows, nodes], q[rows, nodes], tree.depths[rows, nodes] + 1)
    return laws


def point_mass(x: Tensor, like: Tensor) -> Tensor:  # [...], [..., V] -> [..., V]
    """The law from which a chosen token x was drawn."""
    return torch.zeros_like(like).scatter_(-1, x[..., None], 1)
