"""Sampling of continuous tokens: the law of a token is its condition, from which the diffusion head draws it."""

from dataclasses import dataclass

from torch import Tensor

from lantern.continuous.gaussian_noise import GaussianNoise
from lantern.continuous.token_head import LatentDrafter, TokenHead
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import Drafter, Target


@dataclass(frozen=True)
class LatentSampling(Sampling):
    """Guidance alone is set: cfg_scale s guides the predicted noise as u + s (c - u)."""

    has_entropy = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise LanternError(
                f"sampling.temperature={self.temperature}, top_k={self.top_k}, top_p={self.top_p}: latents are drawn "
                "from the model's own law; set sampling.cfg_scale alone"
            )

    def noise(self, target: Target, drafter: Drafter, batch_size: int) -> GaussianNoise:
        """Raises LanternError for a target or a drafter of codes."""
        head = TokenHead(target)
        if drafter.depth and not isinstance(drafter, LatentDrafter):
            raise LanternError(
                f"drafter={drafter.name} drafts codes and the model's tokens are latents; use drafter=latent_jacobi"
            )
        return GaussianNoise(batch_size, head.shape, drafter.depth, target.codebook.device, drafter.num_nodes)

    def law(self, logits: Tensor) -> Tensor:
        """[..., R D] conditions, unchanged."""
        return logits
