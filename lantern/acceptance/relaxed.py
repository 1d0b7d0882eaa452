"""Rules given by a map p -> p~: tokens are judged against p~, and the residual is norm(max(p~ - q, 0))."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.types import AcceptanceRule, Site


@runtime_checkable
class Relaxation(AcceptanceRule, Protocol):
    """An acceptance rule given by the law p~ that replaces the target's when token x is judged."""

    def relax(self, p: Tensor, x: Tensor) -> Tensor: ...  # [B, V], [B] -> p~ [B, V]


def relaxed(p_tilde: Tensor, q: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """Speculative sampling against p~ (Leviathan et al., 2211.17192, algorithm 1).

    p_tilde [B, V], q [B, V] or None, x [B] -> acceptance min(1, p~(x) / q(x)) [B], residual norm(max(p~ - q, 0)).
    A chosen token (q None) is a point mass: accepted with p~(x), and the residual is p~ without x. A residual without
    mass, which only rounding produces, becomes p~.
    """
    index = x[:, None]
    if q is None:
        accept = p_tilde.gather(1, index)[:, 0]
        residual = p_tilde.scatter(1, index, 0)
    else:
        accept = (p_tilde.gather(1, index) / q.gather(1, index).clamp(min=torch.finfo(q.dtype).tiny))[:, 0]
        residual = (p_tilde - q).clamp(min=0)
    return accept.clamp(max=1), normalise(residual, p_tilde)


def judge_by_relaxed_law(rule: Relaxation, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
    return relaxed(rule.relax(p, x), q, x)  # as AcceptanceRule.judge


def normalise(masses: Tensor, otherwise: Tensor | float) -> Tensor:
    """[..., V] non-negative masses -> laws that sum to 1; `otherwise` in rows without any mass."""
    total = masses.sum(-1, keepdim=True)
    if total.is_cpu and bool((total > 0).all()):  # elsewhere it would wait for the device
        return masses / total
    return torch.where(total > 0, masses / total, otherwise)


def absorb(p: Tensor, x: Tensor, neighbours: Tensor, budget: Tensor | float) -> Tensor:
    """p~: x takes the mass of its neighbours, nearest first, while the sum stays within the budget.

    p [B, V], x [B], neighbours [V, K], budget [B, 1] or a number -> [B, V]; the total mass is unchanged (LANTERN,
    2410.03355, the set A_{k,δ}(x)).
    """
    near = neighbours[x]  # [B, K]
    mass = p.gather(1, near)
    mass = mass * (mass.cumsum(-1) <= budget)  # cumsum grows, so this is a prefix
    moved = p.scatter_add(1, near, -mass)
    return moved.scatter_add(1, x[:, None], mass.sum(-1, keepdim=True))
