"""LlamaGen's released checkpoints (2406.06525) to a ready Target: the .pt files in any of their wrappers, LANTERN's
HF-style conversion of the text-to-image ones, the VQ-16 and VQ-8 tokenizers, class ids or T5 captions as prompts."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from lantern.errors import CheckpointError
from lantern.hardware import resolve_device, resolve_dtype
from lantern.models.checkpoints import WEIGHTS_FILE, load_strictly, read_weights, weights_hash
from lantern.models.files import find_file
from lantern.models.llamagen.conversion import from_converted, is_converted
from lantern.models.llamagen.target import Conditioner, LlamaGenTarget
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer, rotation_table
from lantern.models.t5 import T5Features
from lantern.models.text import ClassLabels


def load_tokenizer(
    checkpoint: str,
    file: str,
    multipliers: Sequence[int],
    channels: int = 128,
    z_channels: int = 256,
    codebook_size: int = 16384,
    code_dim: int = 8,
    num_res_blocks: int = 2,
    device: str = "auto",
    setting: str = "model.tokenizer.checkpoint",
) -> VQTokenizer:
    """A released VQ tokenizer, in evaluation mode; five multipliers are VQ-16, four VQ-8. Raises CheckpointError."""
    multipliers = list(multipliers)
    with torch.device("meta"):
        model = VQTokenizer(channels, multipliers, multipliers, codebook_size, code_dim, z_channels, num_res_blocks)
    place = resolve_device(device)
    if place.type != "meta":
        path = find_file(checkpoint, file, setting, 4 * _count(model))
        model = model.to_empty(device="cpu")
        load_strictly(model, read_weights(path), path, f"give {setting}=<the tokenizer of this target>")
    return model.to(place).eval().requires_grad_(False)


def load_class_target(
    checkpoint: str,
    file: str,
    tokenizer: VQTokenizer,
    dim: int,
    num_layers: int,
    num_heads: int,
    image_size: int,
    num_classes: int = 1000,
    multiple_of: int = 256,
    cfg_scale: float = 2.0,
    dtype: str = "auto",
    device: str = "auto",
) -> LlamaGenTarget:
    """A class-conditional model; prompts are class numbers. Raises CheckpointError."""
    with torch.device("meta"):
        body = Transformer(
            dim,
            num_layers,
            num_heads,
            len(tokenizer.codebook),
            grid_of(image_size, tokenizer),
            num_classes=num_classes,
            multiple_of=multiple_of,
        )
    return _target(body, checkpoint, file, ClassLabels(num_classes), tokenizer, cfg_scale, dtype, device)


def load_text_target(
    checkpoint: str,
    file: str,
    tokenizer: VQTokenizer,
    text_encoder: T5Features,
    dim: int,
    num_layers: int,
    num_heads: int,
    image_size: int,
    multiple_of: int = 256,
    cfg_scale: float = 7.5,
    dtype: str = "auto",
    device: str = "auto",
) -> LlamaGenTarget:
    """A text-conditional model; prompts are captions. Raises CheckpointError."""
    with torch.device("meta"):
        body = Transformer(
            dim,
            num_layers,
            num_heads,
            len(tokenizer.codebook),
            grid_of(image_size, tokenizer),
            caption_dim=text_encoder.encoder.config.d_model,
            prefix_len=text_encoder.length,
            multiple_of=multiple_of,
        )
    return _target(body, checkpoint, file, text_encoder, tokenizer, cfg_scale, dtype, device)


def grid_of(image_size: int, tokenizer: VQTokenizer) -> tuple[int, int]:
    """Rows and columns of tokens. Raises CheckpointError for a size that the tokenizer does not divide."""
    side, rest = divmod(image_size, tokenizer.downsampling)
    if rest or side < 1:
        raise CheckpointError(
            f"model.image_size={image_size} is no multiple of {tokenizer.downsampling}; give 256, 384 or 512"
        )
    return side, side


def read_transformer(path: Path) -> dict[str, torch.Tensor]:
    """A state dict with the names of the .pt files, whichever format it lies in. Raises CheckpointError."""
    state = read_weights(path)
    return from_converted(state) if is_converted(state) else state


def _target(
    body: Transformer,
    checkpoint: str,
    file: str,
    conditioner: Conditioner,
    tokenizer: VQTokenizer,
    cfg_scale: float,
    dtype: str,
    device: str,
) -> LlamaGenTarget:
    place = resolve_device(device)
    kept = resolve_dtype(dtype, place)
    if place.type == "meta":
        return LlamaGenTarget(body.to(kept), conditioner, tokenizer, cfg_scale)
    name = WEIGHTS_FILE if _is_converted_folder(checkpoint, file) else file
    path = find_file(checkpoint, name, "model.checkpoint", 4 * _count(body))
    state = read_transformer(path)
    model = body.to(kept).to_empty(device="cpu")
    load_strictly(model, state, path, "give model.checkpoint=<a file of this size>, or another model=llamagen_…")
    model.rotation = rotation_table(model.grid, model.prefix_len, model.dim // model.num_heads)  # stored nowhere
    return LlamaGenTarget(model.to(place), conditioner, tokenizer, cfg_scale, weights_hash(path))


def _is_converted_folder(checkpoint: str, file: str) -> bool:
    folder = Path(checkpoint).expanduser()
    return (folder / WEIGHTS_FILE).is_file() and not (folder / file).is_file()


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
