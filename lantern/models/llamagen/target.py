"""A LlamaGen checkpoint as a Target: guidance rows batched, static cache, tree passes with a mask from the parents."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Protocol

import torch
from einops import rearrange
from torch import Tensor, nn

from lantern.engine.cache import TARGET_PASS, PrefillView, SlotView, TreeView, additive
from lantern.engine.cached_target import CachedTarget, ImageTokenizer
from lantern.engine.graphs import with_tensors
from lantern.identity import tensor_hash
from lantern.models.llamagen.fused import FusedTransformer, cache_dtype, linear, precise, rotary_table
from lantern.models.llamagen.transformer import Transformer, causal_mask
from lantern.types import AnyText, DraftTree, Forward, PromptReader, Verdict


class Conditioner(Protocol):
    """Encodes prompts as the transformer's prefix embedding reads them. One that does not read any text, or has weights
    of its own, is a lantern.types.PromptReader as well."""

    def __call__(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """-> condition [B, P, C] or labels [B], visible [B, P] false at pads."""


class LlamaGenTarget(CachedTarget):
    """Implements lantern.types.Target. With cfg_scale 1 only the conditional rows are computed."""

    def __init__(
        self, transformer: Transformer, conditioner: Conditioner, tokenizer: ImageTokenizer, cfg_scale: float = 2.0,
        weights_hash: str = "",
    ) -> None:  # fmt: skip
        super().__init__(tokenizer, cfg_scale, weights_hash, tokenizer.codebook.device)
        self.transformer, self.conditioner = transformer.eval().requires_grad_(False), conditioner
        self.body, self._head = FusedTransformer(transformer), self._projection()
        self._compiled = cache(partial(_compiled, transformer))  # shared by configured copies
        self.embed_weight = transformer.tok_embeddings.weight  # [V, D]
        self.rotation = transformer.rotation  # [P + L, 2, Dh]
        self.rotary = rotary_table(self.rotation, precise(transformer.norm.weight))  # [P + L, 2, 1, Dh / 2]
        self.vocab_size, self.num_tokens = transformer.vocab_size, transformer.num_tokens
        self.grid, self.prefix_len = transformer.grid, transformer.prefix_len

    def _projection(self) -> Callable[[Tensor], Tensor]:  # [M, D] -> [M, V]
        return linear(self.transformer.output.weight)

    @property
    def reads(self) -> PromptReader:
        return self.conditioner if isinstance(self.conditioner, PromptReader) else AnyText()

    def _cache_of(self, batch_size: int, num_nodes: int) -> tuple[Any, ...]:
        model, weight = self.transformer, self.transformer.norm.weight
        slots, heads = self.prefix_len + self.num_tokens + num_nodes, model.num_heads
        like = weight.new_empty(0, dtype=cache_dtype(weight))
        return len(model.layers), batch_size, self.guidance, slots, heads, model.dim // heads, like

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        """Admits prompts into rows [B] of the batch: logits [B, 1, V] of the first token, features [B, R, P, F]."""
        model, cache = self.transformer, self.cache
        x, visible = self._prefixes(prompts, self.codebook.device)
        view = PrefillView(cache, rows, model.prefix_len)
        cache.visible[rows, : model.prefix_len] = visible
        mask = additive(causal_mask(visible, model.prefix_len)[:, 0], cache.store.dtype)
        mask = mask.repeat_interleave(self.guidance, 0)
        return self._read(self.body(x, self.rotary[None, : model.prefix_len], mask, view, cache.layers), last=True)

    def _read_example(self, caption: str) -> tuple[list[object], list[object]]:
        """The encoder of captions, and JSON of what it makes of one."""
        encoder, (condition, visible) = self.conditioner, self.conditioner([caption])
        while hasattr(encoder, "encoder"):  # of one that reads its results from a table
            encoder = encoder.encoder
        # values of an encoder with weights differ in their last bits between machines and batches
        values = [] if self.reads.weights_hash else [tensor_hash(condition)]
        return [encoder], [list(condition.shape), str(condition.dtype), visible.tolist(), *values]

    def _prefixes(self, prompts: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
        """-> what the layers read in place of the prompts [B R, P, D], and where it is no pad [B, P]."""
        condition, visible = (part.to(device) for part in self.conditioner(prompts))
        condition = condition.to(self.embed_weight.dtype) if condition.is_floating_point() else condition
        dropped = torch.arange(self.guidance, device=device).bool().repeat(len(prompts))  # conditional, unconditional
        return self.transformer.cls_embedding(condition.repeat_interleave(self.guidance, 0), dropped), visible

    def teach(self, tokens: Tensor, prompts: Sequence[str], layers: Sequence[int] = ()) -> Tensor:
        """Teacher forcing: the tokens [B, L] of images -> features [B, R, P + L - 1, F], row P - 1 + t predicting
        token t; behind them the inputs of `layers`. Without the cache and the head."""
        prefix, visible = self._prefixes(prompts, tokens.device)
        image = self.embed(tokens[:, :-1]).repeat_interleave(self.guidance, 0)
        x = torch.cat([prefix, image], dim=1)
        mask = causal_mask(visible.repeat_interleave(self.guidance, 0), x.shape[1])
        features = self.transformer.body(x, self.rotation[None, : x.shape[1]], mask, layers)
        return rearrange(features, "(b r) t f -> b r t f", r=self.guidance)

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> Forward:
        """One pass over the tree behind the committed prefix: logits [B, N, V], features [B, R, N, F]."""
        settings = tree.topology, self.cfg_scale, self.compiles, self.cache.layers
        run, slots = partial(self._pass, tree), range(tree.tokens.shape[1])
        inputs = tree.tokens, tree.parents
        return Forward(*TARGET_PASS(self.passes, self.cache, slots, run, *inputs, settings=settings))

    def _pass(self, tree: DraftTree, view: TreeView, tokens: Tensor, parents: Tensor) -> Forward:
        tree = with_tensors(tree, tokens, parents)
        positions = (view.lengths[:, None] + tree.depths).clamp(max=len(self.rotary) - 1)
        x, mask = self._repeated(self.embed(tokens)), view.mask(tree.ancestors)
        rotary = self.rotary.index_select(0, positions.flatten()).unflatten(0, positions.shape)
        rotary = rotary if len(positions) == 1 else self._repeated(rotary)  # one image's broadcast over guidance rows
        if self.compiles:
            return self._read(self._compiled()(x, rotary, mask, view, self.cache.layers))
        return self._read(self.body(x, rotary, mask, view, self.cache.layers))

    def _repeated(self, x: Tensor) -> Tensor:  # [B, ...] -> [B R, ...]
        return x[:, None].expand(-1, self.guidance, *x.shape[1:]).flatten(0, 1)

    @torch.inference_mode()
    def read_positions(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Forward:
        """A pass outside raster order: tokens [B, M] at image positions [B, M] attend to the prefix and to
        the positions mask [B, M, L + 1]. Position L holds padding."""
        cache, prefix = self.cache, self.prefix_len
        mask = torch.cat([cache.visible[:, None, :prefix].expand(-1, positions.shape[1], -1), mask], dim=2)
        mask = self._repeated(additive(mask, cache.store.dtype))
        x, slots = self._repeated(self.embed(tokens)), self._repeated(prefix + positions)
        view = SlotView(cache, slots, prefix + self.num_tokens + 1)
        rotary = self.rotary[slots.clamp(max=len(self.rotary) - 1)]
        return self._read(self.body(x, rotary, mask, view, cache.layers))

    def _read(self, rows: Tensor, last: bool = False) -> Forward:
        """rows [B R, N, F] of the body; last: the logits of the last one alone."""
        features = rearrange(rows, "(b r) n f -> b r n f", r=self.guidance)
        read = features[..., : self.transformer.dim]
        return Forward(self.head(self.guide(read[:, :, -1:] if last else read)), features)

    def commit(self, verdict: Verdict) -> None:
        self.cache.move(verdict.path, verdict.paths, verdict.num_committed)

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)

    def embed(self, tokens: Tensor) -> Tensor:  # [...] -> [..., D]
        return self.transformer.tok_embeddings(tokens)

    def head(self, features: Tensor) -> Tensor:  # [..., D] -> [..., V]
        return self._head(features.flatten(0, -2)).unflatten(0, features.shape[:-1])


def _compiled(transformer: Transformer) -> nn.Module:
    from lantern.models.llamagen.compiled import CompiledTransformer  # torch's compiler takes two seconds to import

    return CompiledTransformer(transformer)
