"""Loads LlamaGen's released checkpoints (2406.06525) as targets: the .pt files in any of their wrappers, LANTERN's
HF-style conversion of the text-to-image ones, the VQ-16 and VQ-8 tokenizers; class ids or T5 captions as prompts."""

import re
from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path

import torch
from torch import Tensor, nn

from lantern.errors import CheckpointError
from lantern.models import checkpoints
from lantern.models.checkpoints import CONFIG_FILE, RANDOM, WEIGHTS_FILE, WRAPPER_KEYS, weights_hash
from lantern.models.conditioners import ClassLabels, WordFeatures
from lantern.models.hub import optional_file
from lantern.models.llamagen.target import Conditioner, LlamaGenTarget
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer, rotation_table
from lantern.models.t5 import T5Features
from lantern.models.token_grid import grid_of
from lantern.runtime.hardware import resolve_device, resolve_dtype

RESOLUTION = re.compile(r"_(256|384|512)$")  # at the end of a released file's stem: its pixels


def load_tokenizer(
    checkpoint: str, file: str, multipliers: Sequence[int], channels: int = 128, z_channels: int = 256,
    codebook_size: int = 16384, code_dim: int = 8, num_res_blocks: int = 2, device: str = "auto",
    setting: str = "model.tokenizer.checkpoint", weights: str | None = None,
) -> VQTokenizer:  # fmt: skip
    """A released VQ tokenizer, to evaluate; five multipliers: VQ-16, four: VQ-8. weights: as part of read_weights."""
    levels = list(multipliers)
    build = partial(VQTokenizer, channels, levels, levels, codebook_size, code_dim, z_channels, num_res_blocks)
    remedy = f"give {setting}=<the tokenizer of this target>"
    read = partial(checkpoints.read_weights, part=weights)
    return checkpoints.load_released(build, checkpoint, file, setting, remedy, device, read)


def load_class_target(
    checkpoint: str, file: str, tokenizer: VQTokenizer, dim: int, num_layers: int, num_heads: int, image_size: int,
    num_classes: int = 1000, multiple_of: int = 256, cfg_scale: float = 2.0, dtype: str = "auto", device: str = "auto",
    weights: str | None = None,
) -> LlamaGenTarget:  # fmt: skip
    """weights: as part of read_weights, here and in load_text_target."""
    sizes = {"dim": dim, "num_layers": num_layers, "num_heads": num_heads, "multiple_of": multiple_of}
    sizes |= {"num_classes": num_classes}
    given = ClassLabels(num_classes), tokenizer, cfg_scale, dtype, device, weights
    return _target(sizes, checkpoint, file, image_size, *given)


def load_text_target(
    checkpoint: str, file: str, tokenizer: VQTokenizer, text_encoder: T5Features | WordFeatures, dim: int,
    num_layers: int, num_heads: int, image_size: int, multiple_of: int = 256, cfg_scale: float = 7.5,
    dtype: str = "auto", device: str = "auto", weights: str | None = None,
) -> LlamaGenTarget:  # fmt: skip
    sizes = {"dim": dim, "num_layers": num_layers, "num_heads": num_heads, "multiple_of": multiple_of}
    sizes |= {"caption_dim": text_encoder.dim, "prefix_len": text_encoder.length}
    return _target(sizes, checkpoint, file, image_size, text_encoder, tokenizer, cfg_scale, dtype, device, weights)


def read_transformer(path: Path, part: str | None = None) -> dict[str, Tensor]:
    """A state dict with the names of the .pt files, from either format; part: as of read_weights."""
    state = checkpoints.read_weights(path, part)
    is_converted = any(name.startswith("model.layers.") for name in state)  # names of transformers' Llama
    return from_converted(state) if is_converted else state


def check_file(path: Path, image_size: int, body: Transformer) -> None:
    """Checks the resolution by the file's name, or a converted file's config.json, since all resolutions have equal
    shapes. The norms take that config's epsilon, which LANTERN's code uses."""
    if (named := RESOLUTION.search(path.stem)) and int(named[1]) != image_size:
        raise CheckpointError(
            f"{path} holds weights for {named[1]} pixels by its name, but model.image_size={image_size}; give "
            f"model.image_size={named[1]}, or model.checkpoint=<a file for {image_size} pixels>"
        )
    if path.name != WEIGHTS_FILE or not path.with_name(CONFIG_FILE).is_file():
        return
    config = checkpoints.read_config(path.parent)
    built = {"block_size": body.num_tokens, "cls_token_num": body.prefix_len, "hidden_act": "silu", "rope_base": 10000}
    if other := [name for name, value in built.items() if config.get(name, value) != value]:
        found, expected = (", ".join(f"{name}={sizes[name]}" for name in other) for sizes in (config, built))
        raise CheckpointError(
            f"{path.with_name(CONFIG_FILE)} has {found}, but this model has {expected}; give the model=llamagen_… of "
            "these weights, or model.checkpoint=<the folder of this one>"
        )
    for norm in body.modules():
        if isinstance(norm, nn.RMSNorm):
            norm.eps = config.get("rms_norm_eps", norm.eps)


def _target(
    sizes: dict[str, int], checkpoint: str, file: str, image_size: int, conditioner: Conditioner,
    tokenizer: VQTokenizer, cfg_scale: float, dtype: str, device: str, weights: str | None,
) -> LlamaGenTarget:  # fmt: skip
    """sizes: of the Transformer, but for those that follow from the tokenizer."""
    grid = grid_of(image_size, tokenizer.downsampling)
    build = partial(Transformer, vocab_size=len(tokenizer.codebook), grid=grid, **sizes)
    torch_device = resolve_device(device)
    folder = Path(checkpoint).expanduser()
    is_converted = (folder / WEIGHTS_FILE).is_file() and not (folder / file).is_file()
    name = WEIGHTS_FILE if is_converted else file
    setting, remedy = "model.checkpoint", "give model.checkpoint=<a file of this size>, or another model=llamagen_…"
    torch_dtype = resolve_dtype(dtype, torch_device)
    read = partial(read_transformer, part=weights)
    body, path = checkpoints.build_model(build, checkpoint, name, setting, remedy, torch_device, torch_dtype, read)
    if torch_device.type == "meta":
        return LlamaGenTarget(body, conditioner, tokenizer, cfg_scale)
    if path:
        if path.name == WEIGHTS_FILE:
            optional_file(checkpoint, CONFIG_FILE)
        check_file(path, image_size, body)
    rotation = rotation_table(body.grid, body.prefix_len, body.dim // body.num_heads)  # not in the checkpoint
    body.rotation = rotation.to(torch_device)
    part = "" if weights in (None, WRAPPER_KEYS[0]) else f"-{weights}"  # of one file, another target
    return LlamaGenTarget(body, conditioner, tokenizer, cfg_scale, weights_hash(path) + part if path else RANDOM)


# LANTERN's conversions name weights as transformers' Llama does. Rotary pairs are interleaved in both, so that q, k
# and v are stacked without permuting rows.
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


def from_converted(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with the names and shapes of the .pt files; unknown names are left unchanged."""
    parts: dict[str, dict[str, Tensor]] = {}
    renamed = {}
    for name, value in state.items():
        if part := PART.fullmatch(name):
            parts.setdefault(part[1], {})[part[2]] = value
        else:
            renamed[reduce(lambda known, names: known.replace(*names), RENAMED.items(), name)] = value
    whole = {layer: torch.cat([found[part] for part in "qkv"]) for layer, found in parts.items() if len(found) == 3}
    return renamed | {f"layers.{layer}.attention.wqkv.weight": weight for layer, weight in whole.items()}
