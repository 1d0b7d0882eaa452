"""The diffusion head of a target of continuous tokens as verification and drafters run it: all nodes at once, timed."""

from time import perf_counter
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.continuous.diffusion_head import DiffusionHead
from lantern.errors import LanternError
from lantern.types import Drafter, Target


@runtime_checkable
class LatentTarget(Target, Protocol):
    """A target whose tokens are latents. The law of a token is the head's condition: the features of the guidance rows
    side by side [..., R D]."""

    diffusion_head: DiffusionHead


@runtime_checkable
class LatentDrafter(Drafter, Protocol):
    """A drafter of latents."""

    sigma: float  # of the last denoising step, whose noise its drafts have


class Drawn(NamedTuple):
    """The law of tokens given all noise before the last denoising step, and that step's noise."""

    mean: Tensor  # [B, N, C]
    sigma: float
    own: Tensor  # [B, N, C]

    @property
    def tokens(self) -> Tensor:
        """[B, N, C]"""
        return self.mean + self.sigma * self.own


class TokenHead:
    """Denoises up to the last step, given all noise before it: then the token is Gaussian."""

    def __init__(self, target: Target) -> None:
        """Raises LanternError for a target of codes."""
        self.target, self.seconds = latent_target(target), 0.0

    def __call__(self, conditions: Tensor, normals: Tensor) -> Drawn:
        """conditions [B, N, R D], normals [B, N, S + 1, C] as GaussianNoise's: of the tokens behind the nodes."""
        start, head = perf_counter(), self.target.diffusion_head
        rows = conditions.flatten(0, 1).unflatten(-1, (self.target.guidance, -1))
        noises = normals[:, :, :-1].flatten(0, 1).to(torch.promote_types(conditions.dtype, torch.float32))
        made = head.last_step(rows, noises, self.target.cfg_scale)
        self.seconds += perf_counter() - start
        mean = made.mean.unflatten(0, conditions.shape[:2])
        return Drawn(mean, made.sigma, normals[:, :, -1].to(mean.dtype))

    @property
    def shape(self) -> tuple[int, int]:
        """S + 1, C: of the noise of a token."""
        return len(self.target.diffusion_head.steps) + 1, self.target.diffusion_head.token_dim

    @property
    def width(self) -> int:
        """R D: numbers of a condition."""
        return self.target.guidance * self.target.embed_weight.shape[-1]

    @property
    def sigma(self) -> float:
        """The standard deviation of the last step."""
        return self.target.diffusion_head.steps[-1].sigma


def latent_target(target: Target) -> LatentTarget:
    """The target, if its tokens are latents; LanternError otherwise."""
    if not isinstance(target, LatentTarget):
        raise LanternError(
            f"{type(target).__name__} has codes and no diffusion head; use model=scenes_continuous, or a verification "
            "and a drafter of codes"
        )
    return target
