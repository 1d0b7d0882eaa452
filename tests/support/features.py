"""Features of images whose laws are known."""

import torch
from torch import nn


class MeanColour(nn.Module):
    """An extractor whose features can be written down: the mean of each channel, scaled."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def features(self, images):
        return images.mean((2, 3)) * self.scale


def gaussian(count: int, mean=0.0, scale=1.0, dims: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dims, generator=torch.Generator().manual_seed(seed)).double() * scale + mean
