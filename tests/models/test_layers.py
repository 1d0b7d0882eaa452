"""Joined projections, and attention of query heads that share key heads, equal to transformers' own."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from support.families import BODY
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from lantern.models.hf import layers

GROUPS = BODY["num_attention_heads"] // BODY["num_key_value_heads"]


def heads(tokens: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A layer, query [3, 4, T, 8], key and value [3, 2, 11, 8], and a mask with a hidden half."""
    generator = torch.Generator().manual_seed(tokens)
    query = torch.randn(3, 4, tokens, 8, generator=generator)
    key, value = torch.randn(2, 3, 2, 11, 8, generator=generator)
    hidden = torch.rand(3, 1, tokens, 11, generator=generator) < 0.5
    hidden[..., 0] = False
    layer = nn.Module()
    layer.num_key_value_groups = GROUPS
    return layer, query, key, value, torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)


@pytest.mark.parametrize("tokens", [1, 2, 7])
@pytest.mark.parametrize("longest", [1, 1024])
def test_it_equals_transformers_own(tokens, longest, monkeypatch):
    """Catches query heads that read another group's keys, and a mask whose rows belong to other tokens."""
    monkeypatch.setattr(layers, "LONGEST", longest)
    given = heads(tokens)
    found, _ = layers.grouped_attention(*given, scaling=0.3, dropout=0.0)
    expected, _ = sdpa_attention_forward(*given, scaling=0.3)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert found.is_contiguous()


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
    layers.fuse_projections([twin])
    return twin


def test_fused_projections_are_those_of_the_checkpoint():
    """Catches parts in another order or of another size, and those of an earlier input given for a later one."""
    layer = Layer().double()
    twin = fused_twin(layer)
    for x in torch.randn(3, 2, 5, 6, dtype=torch.float64):
        for expected, found in zip(layer(x), twin(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(twin.self_attn.q_proj(x), F.linear(x, layer.self_attn.q_proj.weight))
    assert sum(p.numel() for p in twin.parameters()) == sum(p.numel() for p in layer.parameters())


def test_projections_with_a_bias_and_those_fused_already_are_left_alone():
    """Catches a lost bias, and a body that two targets are made of."""
    layer = Layer(bias=True)
    twin = fused_twin(layer)
    layers.fuse_projections([twin])
    x = torch.randn(2, 6)
    for expected, found in zip(layer(x), twin(x), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1), (1, 3), (2, 2), (5,)])
def test_products_of_a_few_rows_are_those_of_a_linear_layer(shape, bias):
    """Catches rows and columns exchanged, a lost bias, and layers that were left as they were."""
    layer = nn.Module()
    layer.self_attn, layer.mlp = nn.Module(), nn.Module()
    layer.self_attn.o_proj, layer.mlp.down_proj = nn.Linear(6, 4, bias=bias), nn.Linear(4, 7, bias=bias)
    twin, x = fused_twin(layer), torch.randn(*shape, 6)
    expected, found = (part.mlp.down_proj(part.self_attn.o_proj(x)) for part in (layer, twin))
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous()
    assert {type(part) for part in twin.modules() if isinstance(part, nn.Linear)} == {layers.FewRowsLinear}
