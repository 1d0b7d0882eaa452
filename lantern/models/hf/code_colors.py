"""Pictures of codes without their decoder."""

import torch
from torch import Tensor, nn


class CodeColors(nn.Module):
    """Each code a colour, by the three directions in which the codebook varies most, so that near codes look alike. The
    last h x w tokens of an image are shown."""

    def __init__(self, codebook: Tensor, grid: tuple[int, int], pixels: int = 8) -> None:
        super().__init__()
        self.codebook, self.grid, self.pixels = codebook, grid, pixels
        self.colors: Tensor | None = None  # [V, 3]

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        if self.colors is None:
            codebook = self.codebook.float()
            centred = codebook - codebook.mean(0)
            axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -3:]
            projected = centred @ (axes * axes.sum(0).sign())  # signs independent of the library
            self.colors = (projected / projected.std(0).clamp(min=1e-6) / 4 + 0.5).clamp(0, 1)
        height, width = self.grid
        shown = self.colors[tokens[:, -height * width :].unflatten(1, self.grid)].permute(0, 3, 1, 2)
        return shown.repeat_interleave(self.pixels, 2).repeat_interleave(self.pixels, 3)
