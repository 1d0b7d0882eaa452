"""Loads continuous targets from weights folders: what was trained, on top of the discrete target and the tokenizer
whose hashes the folder's config names."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lantern.continuous.continuous_tokenizer import ContinuousTokenizer, Standardisation
from lantern.continuous.continuous_transformer import ContinuousTransformer
from lantern.continuous.target import ContinuousLlamaGenTarget
from lantern.errors import CheckpointError
from lantern.models.checkpoints import described, load_strictly, load_weights, weights_hash
from lantern.models.llamagen.weights_folder import check_made_for, conditioner_of, tokenizer_of
from lantern.runtime.hardware import resolve_device, resolve_dtype

REMEDY = "check model.folder, or train it with: python train.py task=target_continuous"


def transformer_of(config: dict[str, Any], codebook: Tensor) -> ContinuousTransformer:
    """The untrained transformer that a continuous target's config describes; codebook [V, C] of its tokenizer."""
    constants = Standardisation(config["mean"], config["std"])
    return ContinuousTransformer(codebook, constants, config["trained_layers"], config["head"], config["architecture"])


def load_continuous_target(
    folder: str | Path, base: str | Path, tokenizer: str | Path, cfg_scale: float = 2.0, dtype: str = "auto",
    device: str = "auto",
) -> ContinuousLlamaGenTarget:  # fmt: skip
    """folder, base and tokenizer are weights folders; the diffusion head runs in float32 at least. CheckpointError if
    they are missing or do not fit together."""
    where = resolve_device(device)
    state, config = load_weights(folder)
    if "base_hash" not in config:
        raise CheckpointError(f"{folder}/config.json names no base_hash, so it is no continuous target; {REMEDY}")
    images = tokenizer_of(config, folder, tokenizer)
    check_made_for(config, "base", folder, base, weights_hash(base))
    settings = {"config": config, "codebook": images.codebook}
    transformer = described(transformer_of, settings, folder, REMEDY)
    load_strictly(transformer, transformer.shared_with(load_weights(base)[0]) | state, folder, REMEDY)
    conditioner = described(conditioner_of, {"config": config}, folder, REMEDY)
    cast(transformer.to(where), resolve_dtype(dtype, where))
    continuous = ContinuousTokenizer(images.to(where), transformer.tok_embeddings.standardisation)
    return ContinuousLlamaGenTarget(transformer, conditioner, continuous, cfg_scale, weights_hash(folder))


def cast(transformer: ContinuousTransformer, dtype: torch.dtype) -> None:
    """All weights in `dtype`; constants, and the diffusion head, whose outputs are the tokens, in float32 at least."""
    transformer.to(torch.promote_types(dtype, torch.float32))
    for part in (transformer.cls_embedding, transformer.layers, transformer.norm):
        part.to(dtype)
    table = transformer.tok_embeddings.weight
    table.data = table.data.to(dtype)
