"""A LlamaGen checkpoint as a Target: guidance rows batched, static cache, tree passes with a mask from the parents."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import torch
from einops import rearrange
from torch import Tensor, nn

from lantern.models.cache import KVCache, PrefillView, ReusableBuffer, SlotView, additive
from lantern.models.graphs import EXTENT, PassGraphs
from lantern.models.llamagen.fused import FusedTransformer, cache_dtype, precise, rotary_table
from lantern.models.llamagen.transformer import Transformer, causal_mask
from lantern.models.onednn_linear import linear
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

    compiles = False

    def __init__(
        self,
        transformer: Transformer,
        conditioner: Conditioner,
        tokenizer: ImageTokenizer,
        cfg_scale: float = 2.0,
        weights_hash: str = "",
    ) -> None:
        self.transformer = transformer.eval().requires_grad_(False)
        self.body, self._head = FusedTransformer(transformer), linear(transformer.output.weight)
        self.rotary = rotary_table(transformer.rotation, precise(transformer.output.weight))  # [P + L, 2, 1, Dh / 2]
        self.conditioner, self.tokenizer = conditioner, tokenizer
        self.cfg_scale, self.weights_hash = cfg_scale, weights_hash
        self.vocab_size, self.num_tokens = transformer.vocab_size, transformer.num_tokens
        self.grid, self.codebook = transformer.grid, tokenizer.codebook
        self._buffer = ReusableBuffer()
        self.graphs = PassGraphs.of(self._pass, self.codebook.device)

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

    def step_bytes(self, batch_size: int = 1) -> int:
        """Bytes that an AR step must read: the weights behind the embeddings, and the caches, half full."""
        body = self.transformer
        weights = sum(p.nbytes for part in (body.layers, body.norm, body.output) for p in part.parameters())
        return weights + batch_size * self._slot_bytes * (body.prefix_len + body.num_tokens // 2)

    @property
    def held_bytes(self) -> int:
        return self._buffer.nbytes

    def image_bytes(self, num_nodes: int) -> int:
        return self._slot_bytes * self._slots(num_nodes)

    @property
    def _slot_bytes(self) -> int:
        """Of one image's keys and values in one slot."""
        model = self.transformer
        return 2 * len(model.layers) * self.guidance * model.dim * cache_dtype(model.output.weight).itemsize

    def _slots(self, num_nodes: int) -> int:
        return self.prefix_len + self.num_tokens + num_nodes

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        model, slots = self.transformer, self._slots(num_nodes)
        like = model.output.weight.new_empty(0, dtype=cache_dtype(model.output.weight))
        head_dim = model.dim // model.num_heads
        shape = len(model.layers), batch_size, self.guidance, slots, model.num_heads, head_dim
        self.cache = None  # the reserve may have to give its memory back
        self.cache = KVCache(*shape, like, self._buffer)
        self.cache.grain = EXTENT if self.graphs else 0

    def release(self) -> None:
        self.cache, self._buffer = None, ReusableBuffer()

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        """Admits prompts into rows [B] of the batch: logits [B, 1, V] of the first token, features [B, R, P, D]."""
        model, cache, device = self.transformer, self.cache, self.codebook.device
        condition, visible = (part.to(device) for part in self.conditioner(prompts))
        condition = condition.to(self.embed_weight.dtype) if condition.is_floating_point() else condition
        dropped = torch.arange(self.guidance, device=device).bool().repeat(len(prompts))  # conditional, unconditional
        x = model.cls_embedding(condition.repeat_interleave(self.guidance, 0), dropped)
        admission = PrefillView(cache, rows, model.prefix_len)
        cache.visible[rows, : model.prefix_len] = visible
        seen = causal_mask(visible, model.prefix_len)[:, 0]
        mask = additive(seen, cache.store.dtype).repeat_interleave(self.guidance, 0)
        return self._read(self.body(x, self.rotary[None, : model.prefix_len], mask, admission), last=True)

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> Forward:
        """One pass over the tree behind the committed prefix: logits [B, N, V], features [B, R, N, D]."""
        cache = self.cache
        cache.reserve(tree.tokens.shape[1])
        cells = (cache.lengths[:, None] + tree.depths).clamp(max=len(self.rotary) - 1)
        mask = cache.mask(tree.ancestors)
        if self.graphs:
            return Forward(*self.graphs(cache, tree.tokens, cells, mask, settings=(self.cfg_scale, self.compiles)))
        return self._pass(tree.tokens, cells, mask)

    def _pass(self, tokens: Tensor, cells: Tensor, mask: Tensor) -> Forward:
        """tokens, cells [B, N] of the cache's placed slots, mask [B R, 1, N, S]."""
        x = self._repeated(self.embed(tokens))
        rotary = self.rotary.index_select(0, cells.flatten()).unflatten(0, cells.shape)
        rotary = rotary if len(cells) == 1 else self._repeated(rotary)  # one image's hold for its guidance rows
        return self._read((self._compiled if self.compiles else self.body)(x, rotary, mask, self.cache))

    def _repeated(self, x: Tensor) -> Tensor:  # [B, ...] -> [B R, ...]
        return x[:, None].expand(-1, self.guidance, *x.shape[1:]).flatten(0, 1)

    @torch.inference_mode()
    def read_positions(self, tokens: Tensor, cells: Tensor, sees: Tensor) -> Forward:
        """A pass outside raster order: tokens [B, M] stand at image cells [B, M] and see the prefix and the cells
        sees [B, M, L + 1]. Cell L is for what must not be seen again."""
        cache, prefix = self.cache, self.prefix_len
        seen = torch.cat([cache.visible[:, None, :prefix].expand(-1, cells.shape[1], -1), sees], dim=2)
        mask = self._repeated(additive(seen, cache.store.dtype))
        x, slots = self._repeated(self.embed(tokens)), self._repeated(prefix + cells)
        memory = SlotView(cache, slots, prefix + self.num_tokens + 1)
        return self._read(self.body(x, self.rotary[slots.clamp(max=len(self.rotary) - 1)], mask, memory))

    @cached_property
    def _compiled(self) -> nn.Module:
        from lantern.models.llamagen.compiled import CompiledTransformer  # torch's compiler takes two seconds to import

        return CompiledTransformer(self.transformer)

    def _read(self, rows: Tensor, last: bool = False) -> Forward:
        """rows [B R, N, D] behind the final norm; last: the logits of the last one alone."""
        features = rearrange(rows, "(b r) n d -> b r n d", r=self.guidance)
        return Forward(self.head(self.guide(features[:, :, -1:] if last else features)), features)

    def commit(self, verdict: Verdict) -> None:
        self.cache.advance(verdict)

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
        return self._head(features.flatten(0, -2)).unflatten(0, features.shape[:-1])

    @torch.inference_mode()
    def decode(self, tokens: Tensor) -> Tensor:
        """[B, L] -> images [B, 3, H, W] in [0, 1]."""
        return self.tokenizer.decode(tokens)
