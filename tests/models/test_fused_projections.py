"""Projections of the same rows as one product."""

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn

from lantern.models.hf import layers as fused_projections


class Layer(nn.Module):
    """Calls its projections as the layers of transformers do."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        for name, size in (("q_proj", 8), ("k_proj", 4), ("v_proj", 4)):
            setattr(self.self_attn, name, nn.Linear(6, size, bias=bias))
        self.mlp.gate_proj, self.mlp.up_proj = (nn.Linear(6, 10, bias=False) for _ in range(2))

    def forward(self, x):
        attention, mlp = self.self_attn, self.mlp
        seen = [attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)]
        return [*seen, mlp.gate_proj(x), mlp.up_proj(x)]


def fused_twin(layer: Layer) -> Layer:
    twin = deepcopy(layer)
    fused_projections.fuse_projections([twin])
    return twin


def count_products(monkeypatch) -> list[int]:
    counts = []
    monkeypatch.setattr(fused_projections.F, "linear", lambda x, weight, bias=None: counts.append(1) or x @ weight.T)
    return counts


def test_fused_projections_are_those_of_the_checkpoint():
    """Catches parts in another order or of another size, and those of an earlier input given for a later one."""
    layer = Layer().double()
    twin = fused_twin(layer)
    for x in torch.randn(3, 2, 5, 6, dtype=torch.float64):
        for expected, found in zip(layer(x), twin(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(twin.self_attn.q_proj(x), F.linear(x, layer.self_attn.q_proj.weight))
    assert sum(p.numel() for p in twin.parameters()) == sum(p.numel() for p in layer.parameters())


def test_what_reads_the_same_rows_is_one_product(monkeypatch):
    twin, counts = fused_twin(Layer()), count_products(monkeypatch)
    twin(torch.randn(1, 6))
    assert len(counts) == 2


def test_projections_with_a_bias_and_those_fused_already_are_left_alone():
    """Catches a lost bias, and a body that two targets are made of."""
    layer = Layer(bias=True)
    twin = fused_twin(layer)
    fused_projections.fuse_projections([twin])
    x = torch.randn(2, 6)
    for expected, found in zip(layer(x), twin(x), strict=True):
        torch.testing.assert_close(found, expected)
