"""Loads LlamaGen targets and tokenizers trained by this project, from weights folders."""

from pathlib import Path

from lantern.errors import CheckpointError
from lantern.models.checkpoints import described, load_strictly, load_weights, weights_hash
from lantern.models.conditioners import ClassLabels, WordFeatures
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer
from lantern.runtime.hardware import resolve_device, resolve_dtype

TARGET = "check model.folder, or train it with: python train.py task=target"
TOKENIZER = "check model.tokenizer, or train it with: python train.py task=tokenizer"


def load_transformer(folder: str | Path) -> tuple[Transformer, dict]:
    """The transformer of a weights folder and the folder's config. Raises CheckpointError."""
    state, config = load_weights(folder)
    if "architecture" not in config:
        raise CheckpointError(
            f"{folder}/config.json names no architecture, so it is no LlamaGen target; check model.folder"
        )
    transformer = described(Transformer, config["architecture"], folder, TARGET)
    load_strictly(transformer, state, folder, TARGET)
    return transformer, config


def load_tokenizer(folder: str | Path) -> VQTokenizer:
    """The image tokenizer of a weights folder, in evaluation mode. Raises CheckpointError."""
    state, config = load_weights(folder)
    tokenizer = described(VQTokenizer, config, folder, TOKENIZER)
    load_strictly(tokenizer, state, folder, TOKENIZER)
    return tokenizer.eval().requires_grad_(False)


def conditioner_of(config: dict) -> WordFeatures | ClassLabels:
    """The conditioner that a target's config describes."""
    if "vocabulary" in config:
        architecture = config["architecture"]
        length, dim = architecture["prefix_len"], architecture["caption_dim"]
        return WordFeatures(config["vocabulary"], dim, length, config["word_seed"])
    return ClassLabels(config["architecture"]["num_classes"])


def check_made_for(config: dict, part: str, folder: str | Path, given: str | Path) -> None:
    """Raises CheckpointError unless `given` holds the weights of the part that the config of the target in `folder`
    names as <part>_hash."""
    made_for, found = config.get(f"{part}_hash"), weights_hash(given)
    if made_for not in (None, found):
        raise CheckpointError(
            f"the target in {folder} was trained on {part} {made_for}, {given} is {found}; use its own"
        )


def load_target(
    folder: str | Path, tokenizer: str | Path, cfg_scale: float = 2.0, dtype: str = "auto", device: str = "auto"
) -> LlamaGenTarget:
    """folder and tokenizer are weights folders. Raises CheckpointError if they are missing or do not fit together."""
    torch_device = resolve_device(device)
    transformer, config = load_transformer(folder)
    check_made_for(config, "tokenizer", folder, tokenizer)
    images = load_tokenizer(tokenizer).to(torch_device)
    transformer = transformer.to(torch_device, resolve_dtype(dtype, torch_device))
    conditioner = described(conditioner_of, {"config": config}, folder, TARGET)
    return LlamaGenTarget(transformer, conditioner, images, cfg_scale, weights_hash(folder))
