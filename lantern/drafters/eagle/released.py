"""LANTERN's layout of EAGLE-1's network: fc and one decoder layer (2401.15077), and an embedding of its own. Those for
LlamaGen have rotary pairs (2i, 2i + 1) as here, other names, and separate q, k, v. Anole's is a layer of Chameleon with
its norms, rotary pairs (i, i + Dh / 2) and an embedding of the whole vocabulary."""

import torch
from einops import rearrange
from torch import Tensor

LAYER = "layers.0."
MARK = f"{LAYER}self_attn.q_proj.weight"  # names a state dict of this layout
HEAD_NORM = f"{LAYER}self_attn.{{}}_norm.{{}}"  # of Chameleon's layers
FIRST_CODE, CODES = 4, 8192  # of Chameleon's vocabulary
HEADS = tuple(f"{LAYER}self_attn.{part}_proj.weight" for part in "qkv")
OUR_NAMES = {  # theirs to ours
    "embed_tokens.weight": "embed_weight",
    "fc.weight": "fc.weight",
    "fc.bias": "fc.bias",
    f"{LAYER}input_layernorm.weight": "attention_norm.weight",
    f"{LAYER}self_attn.o_proj.weight": "attention.wo.weight",
    f"{LAYER}post_attention_layernorm.weight": "ffn_norm.weight",
    f"{LAYER}mlp.gate_proj.weight": "feed_forward.w1.weight",
    f"{LAYER}mlp.up_proj.weight": "feed_forward.w3.weight",
    f"{LAYER}mlp.down_proj.weight": "feed_forward.w2.weight",
}
EPS = 1e-6  # if config.json gives none: the default of LANTERN's EConfig


def is_released(state: dict[str, Tensor]) -> bool:
    """Whether a state dict is in the released layout."""
    return MARK in state


def from_released(state: dict[str, Tensor], config: dict) -> tuple[dict[str, Tensor], dict]:
    """Their state dict and config in our names; unknown names are kept, for strict loading to report."""
    heads, normed = config["num_attention_heads"], HEAD_NORM.format("q", "weight") in state
    if normed:
        state, config = _of_codes(state, config)
    ours = {OUR_NAMES.get(name, name): value for name, value in state.items() if name not in HEADS}
    if all(name in state for name in HEADS):
        ours["attention.wqkv.weight"] = torch.cat([state[name] for name in HEADS])
    if not config.get("bias", True):
        ours.setdefault("fc.bias", torch.zeros(config["hidden_size"]))
    return ours, {
        "dim": config["hidden_size"],
        "num_heads": heads,
        "hidden_dim": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "eps": config.get("rms_norm_eps", EPS),
        **({"embedding_rows": len(ours["embed_weight"])} if "embed_weight" in ours else {}),
        **({"normed": True} if normed else {}),
    }


def _of_codes(state: dict[str, Tensor], config: dict) -> tuple[dict[str, Tensor], dict]:
    """Anole's state dict and config for image codes alone, with rotary pairs as here."""
    state, heads = dict(state), config["num_attention_heads"]
    count = (config.get("vq_config") or {}).get("n_embed", CODES)
    if "embed_tokens.weight" in state:
        state["embed_tokens.weight"] = state["embed_tokens.weight"][FIRST_CODE : FIRST_CODE + count].clone()
    for name in HEADS[:2]:
        if name in state:
            state[name] = _interleaved(state[name], heads)
    for part in ("weight", "bias"):
        found = [state.pop(name) for kind in "qk" if (name := HEAD_NORM.format(kind, part)) in state]
        if len(found) == 2 and found[0].shape == found[1].shape:
            norms = [_interleaved(value.flatten()[:, None], heads).view_as(value) for value in found]
            state[f"attention.head_norm.{part}"] = torch.stack(norms)
    return state, config | {"vocab_size": count}


def _interleaved(weight: Tensor, heads: int) -> Tensor:  # [H Dh, I] -> [H Dh, I]
    """Reorders rows from rotary pairs (i, i + Dh / 2) to (2i, 2i + 1). Leaves wrong shapes to strict loading."""
    if weight.dim() != 2 or len(weight) % (2 * heads):
        return weight
    return rearrange(weight, "(h two half) i -> (h half two) i", h=heads, two=2)
