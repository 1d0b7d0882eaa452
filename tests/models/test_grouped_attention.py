"""Attention of query heads that share key heads: equal to transformers' own, without copies of keys and values."""

import pytest
import torch
import torch.nn.functional as F
from support.families import BODY
from torch import nn
from transformers import LlamaConfig, LlamaModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from lantern.models.hf import layers as grouped_attention
from lantern.models.hf.layers import NAME, share_keys

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
    monkeypatch.setattr(grouped_attention, "LONGEST", longest)
    given = heads(tokens)
    found, _ = grouped_attention.grouped_attention(*given, scaling=0.3, dropout=0.0)
    expected, _ = sdpa_attention_forward(*given, scaling=0.3)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert found.is_contiguous()


def test_a_model_that_shares_keys_never_copies_them(monkeypatch):
    """Catches a pass over several tokens that expands the cache to all query heads."""
    body = LlamaModel(LlamaConfig(**BODY, vocab_size=16)).eval()
    share_keys(body)
    assert body.config._attn_implementation == NAME
    seen, attend = [], F.scaled_dot_product_attention

    def watched(query: torch.Tensor, key: torch.Tensor, *others: object, **given: object) -> torch.Tensor:
        seen.append(key.shape[1])
        return attend(query, key, *others, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    body(input_ids=torch.arange(5)[None], attention_mask=torch.zeros(1, 1, 5, 5))
    assert seen == [BODY["num_key_value_heads"]] * BODY["num_hidden_layers"]


def test_a_model_with_a_key_head_for_each_query_head_keeps_its_attention():
    body = LlamaModel(LlamaConfig(**{**BODY, "num_key_value_heads": 4}, vocab_size=16))
    share_keys(body)
    assert body.config._attn_implementation != NAME
