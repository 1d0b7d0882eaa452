"""What a drafter reads of its target's passes: the features behind the final norm (EAGLE-1); the inputs of several
layers, mapped to one feature (EAGLE-3, 2503.01840); or both, added (ours). F is D, or D and the width of those inputs:
Forward.features."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LastFeatures(nn.Module):
    """What the head reads."""

    layers: tuple[int, ...] = ()  # whose inputs the target is to hand out
    adds = False

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return features

    def with_head(self, features: Tensor) -> Tensor:  # [..., F] -> [K, ..., D]
        """What the head reads, and behind it what the drafter reads if that is another."""
        return features[None]


class FusedLayers(nn.Module):
    """A linear layer over the inputs of some of the target's layers; those of EAGLE-3 are a low, a middle and a high
    one. Each is normalised first: their scales differ by layer, and large ones make the map's training diverge."""

    adds = False  # the features of LastFeatures

    def __init__(self, dim: int, layers: Sequence[int]) -> None:
        super().__init__()
        if min(layers) < 0:
            raise ValueError(f"layers={list(layers)} are no indices of layers")
        self.dim, self.layers = dim, tuple(layers)
        self.fc = nn.Linear(len(layers) * dim, dim)

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return self.fc(self.normed(features))

    def normed(self, features: Tensor) -> Tensor:  # [..., F] -> [..., F - D]
        """The inputs of all layers, each with a root mean square of 1."""
        inputs = features[..., self.dim :].unflatten(-1, (len(self.layers), self.dim))
        return F.rms_norm(inputs, (self.dim,), eps=1e-5).flatten(-2)

    def with_head(self, features: Tensor) -> Tensor:  # [..., F] -> [K, ..., D]
        """See LastFeatures."""
        return torch.stack([features[..., : self.dim], self(features)])


class AddedLayers(FusedLayers):
    """The features and, added to them, the map of the layers, which starts at zero: a trained drafter of features alone
    goes on from where it was."""

    adds = True

    def __init__(self, dim: int, layers: Sequence[int]) -> None:
        super().__init__(dim, layers)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return features[..., : self.dim] + super().forward(features)
