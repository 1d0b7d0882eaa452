"""Projections that read the same rows as one product, where a checkpoint keeps them apart: queries, keys and values, a
gate and what it gates. A model of transformers asks for them one after the other."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOGETHER = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}


def join(layers: Sequence[nn.Module]) -> None:
    """Those of every decoder layer that have no bias, in place and without a second copy of the weights."""
    for layer in layers:
        for owner, names in TOGETHER.items():
            part = getattr(layer, owner)
            projections = [getattr(part, name) for name in names]
            if all(isinstance(projection, nn.Linear) and projection.bias is None for projection in projections):
                joined = _Joined(projections)
                for index, name in enumerate(names):
                    setattr(part, name, _Part(joined, index))


class _Joined(nn.Module):
    def __init__(self, projections: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.cat([projection.weight.detach() for projection in projections]), False)
        self.sizes = [projection.out_features for projection in projections]
        self._read: Tensor | None = None

    def part(self, index: int, x: Tensor) -> Tensor:
        """x [..., I] -> [..., O] of the projection with this index. The first one asked makes them all."""
        if x is not self._read:
            self._parts, self._read = F.linear(x, self.weight).split(self.sizes, -1), x
        part = self._parts[index]
        if index == len(self.sizes) - 1:
            self._parts, self._read = (), None
        return part


class _Part(nn.Module):
    def __init__(self, joined: _Joined, index: int) -> None:
        super().__init__()
        self.joined, self.index = joined, index

    def forward(self, x: Tensor) -> Tensor:
        return self.joined.part(self.index, x)
