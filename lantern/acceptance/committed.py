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
    first = site.rank == 0
    if p.is_cpu and not bool(first.any()):  # another device is not asked: it would have to be waited for
        return relaxed(p, q, x)
    law = rule.law(p, point_mass(x, p) if q is None else q, site.depth)
    return relaxed(torch.where(first[:, None], law, p), q, x)


def committed_laws(tree: DraftTree, probs: Tensor, q: Tensor, rule: CommittedLaw) -> Tensor:
    """probs p [B, N, V], q [B, N, V] -> r at every node that has children, p at the others [B, N, V].

    Whether a node has children may not depend on the noise that picks among them, or r would follow that noise.
    """
    if rule.lossless:
        return probs
    is_child = tree.parents[:, None] == torch.arange(tree.parents.shape[1], device=probs.device)[:, None]
    laws = rule.law(probs.flatten(0, 1), q.flatten(0, 1), tree.depths.flatten() + 1)
    return torch.where(is_child.any(-1, keepdim=True), laws.view_as(probs), probs)


def point_mass(x: Tensor, like: Tensor) -> Tensor:  # [...], [..., V] -> [..., V]
    """The law from which a chosen token x was drawn."""
    return torch.zeros_like(like).scatter_(-1, x[..., None], 1)
