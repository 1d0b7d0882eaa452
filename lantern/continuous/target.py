"""A LlamaGen body over continuous tokens as a Target, and its loader. What it knows of the next token is the condition
of a diffusion head, from which sampling makes the token."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from lantern.continuous.continuous_transformer import ContinuousTokenizer, ContinuousTransformer, Standardisation
from lantern.engine.graphs import EagerPasses
from lantern.errors import CheckpointError
from lantern.models.checkpoints import build_described, load_strictly, load_weights, weights_hash
from lantern.models.llamagen.target import Conditioner, LlamaGenTarget
from lantern.models.llamagen.weights_folder import check_made_for, conditioner_of, tokenizer_of
from lantern.runtime.hardware import resolve_device, resolve_dtype

REMEDY = "check model.folder, or train it with: python train.py task=target_continuous"


class ContinuousLlamaGenTarget(LlamaGenTarget):
    """Tokens are latents [C]. `Forward.logits` are conditions [B, N, R D], one guidance row beside the other: guidance
    is the diffusion head's, at each of its steps."""

    transformer: ContinuousTransformer

    def __init__(
        self, transformer: ContinuousTransformer, conditioner: Conditioner, tokenizer: ContinuousTokenizer,
        cfg_scale: float = 2.0, weights_hash: str = "",
    ) -> None:  # fmt: skip
        super().__init__(transformer, conditioner, tokenizer, cfg_scale, weights_hash)
        self.diffusion_head, self.token_shape = transformer.output, (transformer.token_dim,)
        self.vocab_size = 2 * transformer.dim  # the width of conditions, at most
        self.passes = EagerPasses(False if self.codebook.is_cuda else None)  # the head's steps are not recorded

    def empty_tokens(self, *shape: int) -> Tensor:
        """Zeros [*shape, C] of the dtype in which the head draws tokens."""
        return self.diffusion_head.times.new_zeros(*shape, *self.token_shape)

    def guide(self, features: Tensor) -> Tensor:
        """[B, R, N, D] -> conditions [B, N, R D]."""
        return rearrange(features, "b r n d -> b n (r d)")

    def _projection(self) -> Callable[[Tensor], Tensor]:
        return torch.nn.Identity()


def transformer_of(config: dict[str, Any], codebook: Tensor) -> ContinuousTransformer:
    """The untrained transformer that a continuous target's config describes; codebook [V, C] of its tokenizer."""
    constants = Standardisation(config["mean"], config["std"])
    return ContinuousTransformer(codebook, constants, config["trained_layers"], config["head"], config["architecture"])


def load_continuous_target(
    folder: str | Path, base: str | Path, tokenizer: str | Path, cfg_scale: float = 2.0, dtype: str = "auto",
    device: str = "auto",
) -> ContinuousLlamaGenTarget:  # fmt: skip
    """folder (what was trained), base (the discrete target) and tokenizer are weights folders; the hashes of the latter
    two are in the folder's config. The diffusion head runs in float32 at least."""
    where = resolve_device(device)
    state, config = load_weights(folder)
    if "base_hash" not in config:
        raise CheckpointError(f"{folder}/config.json names no base_hash, so it is no continuous target; {REMEDY}")
    images = tokenizer_of(config, folder, tokenizer)
    check_made_for(config, "base", folder, base, weights_hash(base))
    sizes = {"config": config, "codebook": images.codebook}
    transformer = build_described(transformer_of, sizes, folder, REMEDY)
    shared = {name: value for name, value in load_weights(base)[0].items() if transformer.is_shared(name)}
    load_strictly(transformer, shared | state, folder, REMEDY)
    conditioner = build_described(conditioner_of, {"config": config}, folder, REMEDY)
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
