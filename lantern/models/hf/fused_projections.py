"""Projections of the same input fused into one product, where a checkpoint has them apart: queries, keys and values;
gate and up. Models of transformers call them one after the other."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FUSED = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}


def fuse_projections(layers: Sequence[nn.Module]) -> None:
    """In place, in every decoder layer, without a second copy of the weights. Projections with a bias stay as they
    are."""
    for layer in layers:
        for owner, names in FUSED.items():
            part = getattr(layer, owner)
            projections = [getattr(part, name) for name in names]
            if all(isinstance(projection, nn.Linear) and projection.bias is None for projection in projections):
                fused = _Fused(projections)
                for index, name in enumerate(names):
                    setattr(part, name, _Part(fused, index))


class _Fused(nn.Module):
    def __init__(self, projections: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.cat([projection.weight.detach() for projection in projections]), False)
        self.sizes = [projection.out_features for projection in projections]
        self._read: Tensor | None = None

    def part(self, index: int, x: Tensor) -> Tensor:
        """x [..., I] -> [..., O] of the projection with this index. The first call computes all of them."""
        if x is not self._read:
            self._parts, self._read = F.linear(x, self.weight).split(self.sizes, -1), x
        part = self._parts[index]
        if index == len(self.sizes) - 1:
            self._parts, self._read = (), None
        return part


class _Part(nn.Module):
    def __init__(self, fused: _Fused, index: int) -> None:
        super().__init__()
        self.fused, self.index = fused, index

    def forward(self, x: Tensor) -> Tensor:
        return self.fused.part(self.index, x)
