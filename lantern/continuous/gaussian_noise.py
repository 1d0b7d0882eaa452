"""The noise of continuous tokens: standard normals by image seed, position, denoising step and channel, from the
counter-based hash that codes draw their Gumbel noise from."""

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.hashing import bits
from lantern.noise import Noise, Purpose


class GaussianNoise(Noise):
    """A position's row holds the normals of its token: those of S denoising steps, then of the last step."""

    def __init__(
        self, batch_size: int, shape: tuple[int, int], depth: int, device: torch.device | str = "cpu",
        num_nodes: int = 1,
    ) -> None:  # fmt: skip
        """shape: S + 1 and C."""
        self.shape = shape
        super().__init__(batch_size, shape[0] * shape[1], depth, device, num_nodes)

    def normals(self, count: int) -> Tensor:
        """[B, count, S + 1, C] of the tokens behind the nodes of a chain, the root's first."""
        return super().noise_of_chain(count).unflatten(-1, self.shape)

    def redraws(self, count: int) -> Tensor:
        """[B, count, C] of candidates for the one token that a round draws again."""
        numbers = torch.arange(count * self.shape[1], device=self.seeds.device)
        normals = standard_normals(self.seeds[:, None], Purpose.RESIDUAL, self.position[:, None], numbers)
        return normals.unflatten(-1, (count, -1))

    def noise_of_chain(self, count: int) -> Tensor:
        """Raises LanternError, as noise_at_depths and draw do: they serve laws of codes."""
        raise LanternError(
            "this verification judges codes and the model's tokens are latents; use verification=gaussian_ratio, "
            "gaussian_shared or cspd"
        )

    def noise_at_depths(self, depths: Tensor) -> Tensor:
        """Raises LanternError."""
        return self.noise_of_chain(0)

    def draw(self, law: Tensor) -> Tensor:
        """Raises LanternError."""
        return self.noise_of_chain(0)

    def _make_picks(self, images: Tensor, ahead: Tensor) -> Tensor:
        """Normals in place of exp(G)."""
        positions = self.position[images, None] + 1 + ahead
        return standard_normals(self.seeds[images][:, None, None], Purpose.PICK, positions[..., None], self._codes)


def standard_normals(seed: Tensor, purpose: Purpose, *counters: Tensor) -> Tensor:
    """float32, of the broadcast shape, each the quantile of one hashed number."""
    unit = (bits(seed, purpose, *counters).view(torch.uint32).double() + 0.5) * 2.0**-32
    return torch.special.ndtri(unit).float()
