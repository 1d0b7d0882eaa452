"""A LlamaGen body over continuous tokens as a Target: what it knows of the next token are conditions of a diffusion
head, from which sampling makes the token."""

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor

from lantern.continuous.continuous_tokenizer import ContinuousTokenizer
from lantern.continuous.continuous_transformer import ContinuousTransformer
from lantern.engine.graphs import EagerPasses
from lantern.models.llamagen.target import Conditioner, LlamaGenTarget


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
