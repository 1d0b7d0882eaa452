"""Weighted acceptance: a token drawn from q is accepted with f = min(1, w p/q); the residual norm(max(p - q f, 0)) is
the one whose committed law is nearest to p (Cool-SD, 2601.09212). Exact wherever w <= 1."""

import torch
from torch import Tensor

from lantern.acceptance.committed import point_mass
from lantern.acceptance.relaxed import normalise

MOST = 1e3  # limit of settings that scale weights: in float32 an infinite weight times p = 0 would be NaN


def judge_weighted(p: Tensor, q: Tensor | None, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """p [B, V], q [B, V] or None (chosen), x [B], weight [B] -> acceptance [B], residual [B, V], p if none is left."""
    draft = point_mass(x, p) if q is None else q
    index = x[:, None]
    kept = torch.minimum(draft, weight[:, None] * p)  # q f
    accept = kept.gather(1, index) / draft.gather(1, index).clamp(min=torch.finfo(p.dtype).tiny)
    return accept[:, 0].clamp(max=1), _residual(p, kept)


def weighted_law(p: Tensor, q: Tensor, weight: Tensor) -> Tensor:
    """[M, V], [M, V], [M] -> the law that one drawn child commits: q f plus the remaining mass times the residual."""
    kept = torch.minimum(q, weight[:, None] * p)
    return normalise(kept + (1 - kept.sum(-1, keepdim=True)).clamp(min=0) * _residual(p, kept), p)


def _residual(p: Tensor, kept: Tensor) -> Tensor:
    return normalise((p - kept).clamp(min=0), p)
