"""Loads LlamaGen targets and tokenizers trained by this project, from weights folders."""

from pathlib import Path

from torch import nn

from lantern.errors import CheckpointError
from lantern.identity import DIGITS, state_hash
from lantern.models.checkpoints import build_described, load_described, load_weights, weights_hash
from lantern.models.conditioners import ClassLabels, WordFeatures
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer
from lantern.runtime.hardware import resolve_device, resolve_dtype

TARGET = "check model.folder, or train it with: python train.py task=target"
TOKENIZER = "check model.tokenizer, or train it with: python train.py task=tokenizer"


def load_transformer(folder: str | Path) -> tuple[Transformer, dict]:
    state, config = load_weights(folder)
    return load_described(Transformer, config.get("architecture", {}), state, folder, TARGET), config


def num_tokens_of(folder: str | Path) -> int:
    return load_transformer(folder)[0].num_tokens


def load_tokenizer(folder: str | Path) -> VQTokenizer:
    state, config = load_weights(folder)
    return load_described(VQTokenizer, config, state, folder, TOKENIZER).eval().requires_grad_(False)


def conditioner_of(config: dict) -> WordFeatures | ClassLabels:
    if "vocabulary" in config:
        architecture = config["architecture"]
        length, dim = architecture["prefix_len"], architecture["caption_dim"]
        return WordFeatures(config["vocabulary"], dim, length, config["word_seed"])
    return ClassLabels(config["architecture"]["num_classes"])


def tokens_hash(tokenizer: VQTokenizer) -> str:
    """A hash of the weights that make tokens of images: a target goes with any decoder of its tokens."""
    parts = {name: getattr(tokenizer, name) for name in ("encoder", "quant_conv", "quantize")}
    return state_hash(nn.ModuleDict(parts))


def tokenizer_of(config: dict, folder: str | Path, tokenizer: str | Path) -> VQTokenizer:
    """The tokenizer of a weights folder, which must make the tokens that the target of `folder` was trained on."""
    images = load_tokenizer(tokenizer)
    check_made_for(config, "tokens", folder, tokenizer, tokens_hash(images))
    return images


def check_made_for(config: dict, part: str, folder: str | Path, given: str | Path, found: str) -> None:
    """Refuses `given`, of hash `found`, if the config of the target in `folder` has another one as <part>_hash."""
    made_for = config.get(f"{part}_hash")
    if made_for is not None and made_for[:DIGITS] != found:  # released configs hold 16 digits
        raise CheckpointError(f"{folder} was trained on {part} {made_for}, {given} has {found}; use its own")


def load_target(
    folder: str | Path, tokenizer: str | Path, cfg_scale: float = 2.0, dtype: str = "auto", device: str = "auto"
) -> LlamaGenTarget:
    torch_device = resolve_device(device)
    transformer, config = load_transformer(folder)
    images = tokenizer_of(config, folder, tokenizer).to(torch_device)
    # rounds the rotary table to that dtype as well, which released checkpoints keep in float32: the embedded model's
    # drafters and published figures are of the rounded one
    transformer = transformer.to(torch_device, resolve_dtype(dtype, torch_device))
    conditioner = build_described(conditioner_of, {"config": config}, folder, TARGET)
    return LlamaGenTarget(transformer, conditioner, images, cfg_scale, weights_hash(folder))
