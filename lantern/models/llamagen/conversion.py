"""State dicts of LlamaGen's text-to-image transformer from LANTERN's repositories, with transformers' Llama names, to
LlamaGen's own names. Rotary pairs are interleaved in both, so q, k and v are stacked without permuting rows."""

import re

import torch
from torch import Tensor

from lantern.errors import CheckpointError

RENAMED = {
    "model.cls_embedding.": "cls_embedding.",
    "model.embed_tokens.": "tok_embeddings.",
    "model.norm.": "norm.",
    "lm_head.": "output.",
    "self_attn.o_proj.": "attention.wo.",
    "mlp.gate_proj.": "feed_forward.w1.",
    "mlp.up_proj.": "feed_forward.w3.",
    "mlp.down_proj.": "feed_forward.w2.",
    "input_layernorm.": "attention_norm.",
    "post_attention_layernorm.": "ffn_norm.",
    "model.layers.": "layers.",
}
PART = re.compile(r"model\.layers\.(\d+)\.self_attn\.([qkv])_proj\.weight")


def is_converted(state: dict[str, Tensor]) -> bool:
    """Whether the names are those of transformers' Llama."""
    return any(name.startswith("model.layers.") for name in state)


def from_converted(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with the names and shapes of the .pt files; unknown names are left unchanged."""
    parts: dict[str, dict[str, Tensor]] = {}
    renamed = {}
    for name, value in state.items():
        if part := PART.fullmatch(name):
            parts.setdefault(part[1], {})[part[2]] = value
        else:
            renamed[_rename(name)] = value
    for layer, found in parts.items():
        if missing := {"q", "k", "v"} - found.keys():
            lost = ", ".join(f"model.layers.{layer}.self_attn.{part}_proj.weight" for part in sorted(missing))
            raise CheckpointError(f"the checkpoint lacks {lost}; copy all of its files again")
        renamed[f"layers.{layer}.attention.wqkv.weight"] = torch.cat([found["q"], found["k"], found["v"]])
    return renamed


def _rename(name: str) -> str:
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    return name
