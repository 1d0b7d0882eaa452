"""A CLIP saved by the package open_clip, such as HPSv2 (2306.09341), a ViT-H/14, as the model of `transformers`."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import CLIPConfig, CLIPModel

from lantern.errors import CheckpointError
from lantern.metrics.networks.clip import CLIP_PIXELS, Clip, load_tokenizer
from lantern.metrics.networks.pixels import Pixels
from lantern.models.checkpoints import load_strictly, read_weights
from lantern.runtime.hardware import resolve_device

NAMES = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final": "text_model.final_layer_norm",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre": "vision_model.pre_layrnorm",
    "visual.ln_post": "vision_model.post_layernorm",
}
IN_LAYERS = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
PROJECTIONS = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
LAYER = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+?)((?:\.|_)(?:weight|bias))")


def load_open_clip(
    checkpoint: str | Path,
    tokenizer: str | Path,
    vision_heads: int = 16,
    text_heads: int = 16,
    scale: float = 1.0,
    device: str = "cpu",
) -> Clip:
    """The network of a file of weights; the numbers of heads, which the weights do not show, are ViT-H/14's by default.
    tokenizer: a folder; device: as resolve_device reads it. CheckpointError if either is missing or something else."""
    state = read_weights(checkpoint)
    try:
        config = config_of(state, vision_heads, text_heads)
    except KeyError as error:
        raise CheckpointError(
            f"{checkpoint} holds no CLIP in open_clip's layout (it lacks {error.args[0]}); give one such as HPSv2's "
            f"HPS_v2.1_compressed.pt"
        ) from error
    with torch.device("meta"):
        body = CLIPModel(config)
    body = body.to_empty(device="cpu")
    for side in (body.text_model, body.vision_model):  # 0, 1, 2, …, stored by neither layout
        positions = side.embeddings.position_ids
        positions.copy_(torch.arange(positions.shape[1])[None])
    load_strictly(body, renamed(state), checkpoint, "give a ViT of open_clip with one text tower")
    words = load_tokenizer(tokenizer, config.text_config.vocab_size)
    pixels = Pixels(config.vision_config.image_size, *CLIP_PIXELS.values())
    return Clip(body.float(), words, pixels, scale).eval().requires_grad_(False).to(resolve_device(device))


def config_of(state: Mapping[str, Tensor], vision_heads: int, text_heads: int) -> CLIPConfig:
    """The sizes by the shapes of the weights."""
    vocab_size, text_width = state["token_embedding.weight"].shape
    vision_width, _, _, patch = state["visual.conv1.weight"].shape
    side = round((len(state["visual.positional_embedding"]) - 1) ** 0.5)
    layers = [match for name in state if (match := LAYER.match(name))]
    depth = [1 + max((int(m[2]) for m in layers if bool(m[1]) == visual), default=-1) for visual in (False, True)]
    text = {
        "vocab_size": vocab_size,
        "hidden_size": text_width,
        "intermediate_size": len(state["transformer.resblocks.0.mlp.c_fc.bias"]),
        "num_hidden_layers": depth[0],
        "num_attention_heads": text_heads,
        "max_position_embeddings": len(state["positional_embedding"]),
        "hidden_act": "gelu",
        "eos_token_id": vocab_size - 1,
        "bos_token_id": vocab_size - 2,
    }
    vision = {
        "hidden_size": vision_width,
        "intermediate_size": len(state["visual.transformer.resblocks.0.mlp.c_fc.bias"]),
        "num_hidden_layers": depth[1],
        "num_attention_heads": vision_heads,
        "image_size": side * patch,
        "patch_size": patch,
        "hidden_act": "gelu",
    }
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=state["text_projection"].shape[1])


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the names of transformers: queries, keys and values split, projections transposed."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        stem, _, leaf = name.rpartition(".")
        if name in PROJECTIONS:
            found[PROJECTIONS[name]] = value.T.contiguous()
        elif match := LAYER.fullmatch(name):
            found |= _layer(match, value)
        else:
            found[NAMES.get(name) or f"{NAMES.get(stem, stem)}.{leaf}"] = value
    return found


def _layer(match: re.Match, value: Tensor) -> dict[str, Tensor]:
    side, number, part, leaf = match.groups()
    home = f"{'vision' if side else 'text'}_model.encoder.layers.{number}"
    leaf = leaf[1:]
    if part == "attn.in_proj":
        return {f"{home}.self_attn.{name}_proj.{leaf}": part for name, part in zip("qkv", value.chunk(3), strict=True)}
    return {f"{home}.{IN_LAYERS.get(part, part)}.{leaf}": value}
