"""A LlamaGen checkpoint as a Target: guidance rows batched, static cache, tree passes with a mask from the parents."""

from collections.abc import Sequence
from typing import Protocol

import torch
from einops import rearrange
from torch import Tensor

from lantern.models.cache import KVCache
from lantern.models.llamagen.transformer import Transformer
from lantern.types import DraftTree, Forward, Verdict


class Conditioner(Protocol):
    """Prompts to what the transformer's prefix embedding reads."""

    def __call__(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """-> condition [B, P, C] or labels [B], visible [B, P] false at pads."""


class ImageTokenizer(Protocol):
    codebook: Tensor

    def decode(self, tokens: Tensor) -> Tensor: ...


class LlamaGenTarget:
    """Implements lantern.types.Target. With cfg_scale 1 only the conditional rows are computed."""

    def __init__(
        self,
        transformer: Transformer,
        conditioner: Conditioner,
        tokenizer: ImageTokenizer,
        cfg_scale: float = 2.0,
        weights_hash: str = "",
    ) -> None:
        self.transformer = transformer.eval().requires_grad_(False)
        self.conditioner, self.tokenizer = conditioner, tokenizer
        self.cfg_scale, self.weights_hash = cfg_scale, weights_hash
        self.vocab_size, self.num_tokens = transformer.vocab_size, transformer.num_tokens
        self.grid, self.codebook = transformer.grid, tokenizer.codebook

    @property
    def guidance(self) -> int:
        return 1 if self.cfg_scale == 1 else 2

    @property
    def rotation(self) -> Tensor:  # [P + L, 2, Dh]
        return self.transformer.rotation

    @property
    def prefix_len(self) -> int:
        return self.transformer.prefix_len

    @property
    def embed_weight(self) -> Tensor:  # [V, D]
        return self.transformer.tok_embeddings.weight

    @property
    def step_bytes(self) -> int:
        """Bytes that one AR step of one image must read: the weights behind the embeddings, and the cache half full."""
        body = self.transformer
        weights = sum(p.nbytes for part in (body.layers, body.norm, body.output) for p in part.parameters())
        entry = 2 * len(body.layers) * self.guidance * body.dim * body.output.weight.element_size()
        return weights + entry * (body.prefix_len + body.num_tokens // 2)

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        body = self.transformer
        slots = body.prefix_len + body.num_tokens + num_nodes
        head_dim = body.dim // body.num_heads
        like = body.output.weight
        self.cache = KVCache(len(body.layers), batch_size, self.guidance, slots, body.num_heads, head_dim, like)

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        """Admits prompts into rows [B] of the batch: logits [B, 1, V] of the first token, features [B, R, P, D]."""
        body, dtype, device = self.transformer, self.transformer.output.weight.dtype, self.codebook.device
        condition, visible = (part.to(device) for part in self.conditioner(prompts))
        condition = condition.to(dtype) if condition.is_floating_point() else condition
        dropped = torch.arange(self.guidance, device=device).bool().repeat(len(prompts))  # conditional, unconditional
        x = body.cls_embedding(condition.repeat_interleave(self.guidance, 0), dropped)
        self.cache.lengths[rows] = 0
        self.cache.visible[rows, : body.prefix_len] = visible
        self.cache.place(rows, body.prefix_len)
        causal = torch.ones(body.prefix_len, body.prefix_len, dtype=torch.bool, device=device).tril()
        own = torch.eye(body.prefix_len, dtype=torch.bool, device=device)
        mask = self.cache.mask(rows, (causal & visible[:, None]) | own, dtype)
        features = body.body(x, body.rotation[None, : body.prefix_len], mask, self.cache.layers())
        self.cache.lengths[rows] = body.prefix_len
        features = rearrange(features, "(b r) p d -> b r p d", r=self.guidance)
        return Forward(self.head(self.guide(features[:, :, -1:])), features)

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> Forward:
        """One pass over the tree behind the committed prefix: logits [B, N, V], features [B, R, N, D]."""
        body, cache = self.transformer, self.cache
        x = self.embed(tree.tokens).repeat_interleave(self.guidance, 0)
        images = torch.arange(len(tree.tokens), device=x.device)
        cache.place(images, tree.tokens.shape[1])
        mask = cache.mask(images, tree.ancestors, x.dtype)
        cells = (cache.lengths[:, None] + tree.depths).clamp(max=len(body.rotation) - 1)
        rotation = body.rotation[cells].repeat_interleave(self.guidance, 0)
        features = body.body(x, rotation, mask, cache.layers())
        features = rearrange(features, "(b r) n d -> b r n d", r=self.guidance)
        return Forward(self.head(self.guide(features)), features)

    def commit(self, verdict: Verdict) -> None:
        self.cache.advance(verdict.path, verdict.accepted)

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)

    def embed(self, tokens: Tensor) -> Tensor:  # [...] -> [..., D]
        return self.transformer.tok_embeddings(tokens)

    def guide(self, features: Tensor) -> Tensor:
        """[B, R, N, D] -> [B, N, D]. The head is linear: guiding features is guiding logits, at half the cost."""
        if features.shape[1] == 1:
            return features[:, 0]
        return torch.lerp(features[:, 1], features[:, 0], self.cfg_scale)

    def head(self, features: Tensor) -> Tensor:  # [..., D] -> [..., V]
        return self.transformer.output(features)

    @torch.inference_mode()
    def decode(self, tokens: Tensor) -> Tensor:
        """[B, L] -> images [B, 3, H, W] in [0, 1]."""
        return self.tokenizer.decode(tokens)
