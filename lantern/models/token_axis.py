"""Tokens along one axis, whatever trails it: nothing for codes, C channels for latents."""

from torch import Tensor

from lantern.types import Target


def has_latents(target: Target) -> bool:
    """Whether its tokens are latents, and not codes."""
    return target.empty_tokens(0).is_floating_point()


def spread(index: Tensor, like: Tensor) -> Tensor:
    """index [B, M] into positions, as gather and scatter need it for tokens or laws like [B, N, ...]."""
    trailing = like.shape[2:]
    return index.view(*index.shape, *[1] * len(trailing)).expand(*index.shape, *trailing) if trailing else index
