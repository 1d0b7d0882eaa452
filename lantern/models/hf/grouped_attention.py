"""Attention of models whose query heads share key heads. With a mask, transformers copies keys and values for every
query head as soon as a pass has two tokens, which for a tree over a long image moves as many bytes as the weights; here
the query heads of a key head become rows of one product, as transformers itself does for a single token."""

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import PreTrainedModel

NAME = "lantern_grouped"
LONGEST = 1024  # tokens of a pass: of more, the mask's copies outweigh those of keys and values


def grouped_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, **given: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """query [B, H, T, D]; key, value [B, G, S, D]; mask [B, 1, T, S] additive -> [B, T, H, D]."""
    groups, length = query.shape[1] // key.shape[1], query.shape[2]
    if attention_mask is None or length > LONGEST:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **given)
    packed = query.reshape(len(query), key.shape[1], groups * length, -1)  # heads that share a key head are neighbours
    mask = attention_mask.repeat(1, 1, groups, 1)
    found = F.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(query.shape).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def share_keys(body: PreTrainedModel) -> None:
    """Gives the model this attention, if its query heads share key heads."""
    if body.config.num_attention_heads > body.config.num_key_value_heads:
        body.set_attn_implementation(NAME)
