"""Any decoder body of transformers as a Target: static cache, tree passes by a 4D mask and position ids, guidance rows,
an image slice of its vocabulary, and structural tokens that are not drafted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.engine.cache import TARGET_PASS, PrefillView, TreeView, additive, rows_of
from lantern.engine.cached_target import CachedTarget, ImageTokenizer
from lantern.errors import LanternError
from lantern.identity import sampled_hash
from lantern.models.hf.layers import fuse_projections, kept_inputs, share_keys, weight_of
from lantern.models.hf.prompt_format import PromptIds
from lantern.models.hf.structure import StructuredTree, host_paths, with_row_ends
from lantern.models.llamagen.fused import KVView, precise, rotary_table
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import causal_mask, rotation_pairs, with_layers
from lantern.models.token_grid import grid_positions, token_layout
from lantern.types import DraftTree, Forward, Verdict

CLOSE = {2: 0.1, 4: 0.01, 8: 0.01}  # by bytes of a logit, of logits' deviation: largest distance from the model's own
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}  # kinds of layers; the others are recurrent
ROPE_BY_LENGTH = ("dynamic", "longrope")


@dataclass(frozen=True)
class ImageVocabulary:
    """What the body reads for each code, and what predicts the next one. `hidden` is the part of a head that is not
    linear: guidance mixes what comes behind it."""

    embed: Tensor  # [V, D]
    head: Tensor  # [V, D]
    bias: Tensor | None = None  # [V]
    hidden: nn.Module = field(default_factory=nn.Identity)
    row_end: Tensor | None = None  # [D] of the token behind every row of the image but the last

    @classmethod
    def of_ids(cls, body: nn.Module, head: nn.Linear, first: int, count: int, row_end: int | None = None) -> Self:
        """For codes that are the ids first … first + count - 1 of a body's words; row_end: the id of that token."""
        codes, embed = slice(first, first + count), weight_of(body.embed_tokens)
        if codes.stop > len(embed):
            raise LanternError(
                f"{count} codes from id {first} are more than the {len(embed)} ids of this model; give its own text "
                "tokenizer and image tokenizer"
            )
        return cls(embed[codes], weight_of(head)[codes].clone(), row_end=None if row_end is None else embed[row_end])


class TransformersCache:
    """A KVView under the interface that transformers' attention expects of a cache."""

    def __init__(self, view: KVView) -> None:
        self.view = view

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        return self.view.update(layer, key, value)


class NoCache:
    """The KVView of a pass without a cache: tokens attend to those of the same pass only."""

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value


class HuggingFaceTarget(CachedTarget):
    """Implements lantern.types.Target. Each guidance row has its own line in the cache, since prefixes differ.

    A body fits if it is the decoder stack of a causal model of transformers (LlamaModel, Qwen2Model, …). It has
    `config`, `layers`, `norm` and `get_input_embeddings()`. Every layer attends by softmax to keys in a cache of
    transformers. Its forward takes inputs_embeds, position_ids, a 4D attention_mask and past_key_values. Recurrent
    layers (Mamba), sliding windows shorter than the image and encoder-decoder models do not fit: for those write a
    Target, as lantern/models/llamagen/target.py does."""

    prefix_len = 0  # until take()

    def __init__(
        self, body: nn.Module, vocabulary: ImageVocabulary, prompts: PromptIds, tokenizer: ImageTokenizer,
        grid: tuple[int, int], cfg_scale: float, weights_hash: str | None = None,
        preview: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """grid: rows and columns of the image; weights_hash: None for that of the weights in memory; preview: of a
        smaller grid that is drawn first. The body's rotary positions are then those of grid_positions."""
        if weights_hash is None:
            parts = {**dict(body.named_parameters()), **dict(vocabulary.hidden.named_parameters())}
            weights_hash = sampled_hash(parts | {"codes": vocabulary.embed, "head": vocabulary.head})
        if isinstance(tokenizer, VQTokenizer) and grid[0] != grid[1]:
            raise LanternError(f"this image tokenizer's grids are square, not {grid[0]} by {grid[1]}; give one side")
        super().__init__(tokenizer, cfg_scale, weights_hash, vocabulary.embed.device)
        self.transformer, self.vocabulary = body.eval().requires_grad_(False), vocabulary
        self.embed_weight = vocabulary.embed  # [V, D]
        share_keys(body)
        if not vocabulary.embed.is_meta:  # on the meta device shapes stay the checkpoint's
            words = body.get_input_embeddings()
            if vocabulary.embed.untyped_storage().data_ptr() == words.weight.untyped_storage().data_ptr():
                weight_of(words)  # refuses raw rows of one that scales what it looks up, as Gemma's
            fuse_projections(body.layers)
        self.prompts = prompts
        self.grid = token_layout(grid, preview)
        self.num_tokens = self.grid[0] * self.grid[1]
        self.vocab_size, device = len(vocabulary.embed), vocabulary.embed.device
        self.positions = grid_positions(preview, grid).to(device) if preview else None  # [L, 3]
        self.take(prompts.length)

    def take(self, length: int) -> None:
        """From now on prefixes have this length, in tokens."""
        if length == self.prefix_len and len(self.rotary) == length + self.num_tokens:
            return
        check_reach(self.transformer.config, length + self.num_tokens)
        self.passes.clear()  # which read the tables in place
        self.prompts.length = self.prefix_len = length
        frequencies = 10000.0 ** (-torch.arange(half := self._head_dim // 2, dtype=torch.float64) / half)
        table = rotation_pairs(torch.arange(length + self.num_tokens)[:, None] * frequencies)  # [P + L, 2, Dh]
        self.rotation = table.float().to(self.vocabulary.embed.device)  # one-dimensional, for drafters
        self.rotary = rotary_table(self.rotation, precise(self.vocabulary.embed))  # for drafters; the body has its own

    @torch.no_grad()
    def check(self, model: Any, codes: Tensor, prompt: Any) -> None:
        """LanternError if the model's own forward gives other logits to codes, which are these ids [V]."""
        ids = torch.tensor([self.prompts([prompt])[0].conditional], device=model.device)
        own = model(input_ids=ids).logits[0, -1, codes.to(model.device)]
        target, close = self.configured(1.0), CLOSE[own.element_size()]  # several times what is found
        target.allocate(1, 1)
        made = HuggingFaceTarget.prefill(target, [prompt], torch.zeros(1, dtype=torch.long, device=own.device))
        found, own = (logits.float() - logits.float().mean() for logits in (made.logits[0, 0], own))
        if not (found - own).norm() <= close * found.norm():  # nan is not close
            raise LanternError(f"the forward of {type(model).__name__} changes logits of codes; write a Target for it")

    def configured(self, cfg_scale: float, compiled: bool = False) -> Self:
        if compiled:
            name = type(self.transformer).__name__
            raise LanternError(f"compile=true is for LlamaGen's layers, {name} has others; leave compile out")
        return super().configured(cfg_scale)

    @property
    def _head_dim(self) -> int:
        config = self.transformer.config
        return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def _cache_of(self, batch_size: int, num_nodes: int) -> tuple[Any, ...]:
        config, has_ends = self.transformer.config, self.vocabulary.row_end is not None
        ends = self.grid[0] + num_nodes if has_ends else 0  # a structural node behind each node of a tree, at most
        slots, rows = self.prefix_len + self.num_tokens + ends + num_nodes, batch_size * self.guidance
        heads, like = config.num_key_value_heads, self.vocabulary.head.new_empty(0)
        return config.num_hidden_layers, rows, 1, slots, heads, self._head_dim, like

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        super().allocate(batch_size, num_nodes)
        device = self.vocabulary.head.device
        self._pads = torch.zeros(batch_size * self.guidance, dtype=torch.long, device=device)  # [B R]
        self._first = torch.zeros(batch_size, dtype=torch.long, device=device)  # [B] the image token at the root
        self._counts = [0] * batch_size  # the same on the host

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        """Admits prompts into rows [B] of the batch: logits [B, 1, V] of the first token, features [B, R, P, D]."""
        ids, pads = self._prefixes(prompts)
        where, length = rows_of(rows, self.guidance), self.prefix_len
        view = PrefillView(self.cache, where, length)
        mask, positions = causal(pads, length)
        self.cache.visible[where, :length] = mask[:, -1]
        self._pads[where], self._first[rows] = pads, 0
        for row in rows.tolist():
            self._counts[row] = 0
        mask = additive(mask, self.cache.store.dtype)
        hidden = self._run(self._embedded(ids), positions, mask, view, self.cache.layers)
        features = rearrange(hidden, "(b r) p f -> b r p f", r=self.guidance)
        return Forward(self._logits(features[:, :, -1:]), features)

    def teach(self, tokens: Tensor, prompts: Sequence[str], layers: Sequence[int] = ()) -> Tensor:
        """Teacher forcing: the first tokens [B, L] of images -> features [B, R, P + L - 1, F], row P - 1 + t predicting
        token t; behind them the inputs of `layers`."""
        ids, pads = self._prefixes(prompts)
        image = self.embed(tokens[:, :-1])
        last = torch.arange(image.shape[1], device=tokens.device)
        if self.vocabulary.row_end is not None:
            width, rows = self.grid[1], image.split(self.grid[1], dim=1)
            end = self.vocabulary.row_end.expand(len(image), 1, -1)
            image = torch.cat([part for row in rows for part in (row, end)[: 1 + row.shape[1] // width]], dim=1)
            last = last + last // width + ((last + 1) % width == 0).long()
        x = torch.cat([self._embedded(ids), image.repeat_interleave(self.guidance, 0)], dim=1)
        mask, places = causal(pads, x.shape[1])
        if self.positions is not None:
            behind = self.prefix_len - pads[:, None, None] + self.positions[: image.shape[1]]
            places = torch.cat([places[:, : self.prefix_len, None].expand(-1, -1, 3), behind], dim=1)
        hidden = self._run(x, places, additive(mask, x.dtype), NoCache(), layers)
        kept = torch.cat([torch.arange(self.prefix_len, device=last.device), self.prefix_len + last])
        return rearrange(hidden[:, kept], "(b r) t f -> b r t f", r=self.guidance)

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> Forward:
        """One pass over the tree behind the committed prefix: logits [B, N, V], features [B, R, N, F]."""
        path = self._structured = self._structure(tree)
        x, repeats, cache = self.embed(tree.tokens), self.guidance, self.cache
        if extra := path.hosts.shape[1]:
            x = torch.cat([x, self.vocabulary.row_end.expand(len(x), extra, -1)], dim=1)
        positions = self._places(path.depths.repeat_interleave(repeats, 0))
        x, attends = (part.repeat_interleave(repeats, 0) for part in (x, path.attends))
        slots = range(x.shape[1])
        (hidden,) = TARGET_PASS(self.passes, cache, slots, self._pass, x, positions, attends, settings=cache.layers)
        hidden = rearrange(hidden, "(b r) m f -> b r m f", r=repeats)
        index = path.last[:, None, :, None].expand(-1, repeats, -1, hidden.shape[-1])
        features = hidden.gather(2, index) if extra else hidden
        return Forward(self._logits(features), features)

    def commit(self, verdict: Verdict) -> None:
        expanded, paths, repeats = verdict, verdict.paths, self.guidance  # read once: the round's one wait
        if self._structured.hosts.shape[1]:
            expanded = self._structured.expand(verdict)
            paths = host_paths(paths, self._counts, self.grid[1], self.num_tokens)
        path, moved = (part.repeat_interleave(repeats, 0) for part in (expanded.path, expanded.num_committed))
        self.cache.move(path, [nodes for nodes in paths for _ in range(repeats)], moved)
        self._first = self._first + verdict.num_committed
        self._counts = [count + committed for count, committed in zip(self._counts, verdict.counts, strict=True)]

    def keep(self, rows: Tensor) -> None:
        lines = rows_of(rows, self.guidance)  # of the cache
        self.cache.keep(lines)
        self._pads, self._first = self._pads[lines], self._first[rows]
        self._counts = [self._counts[row] for row in rows.tolist()]

    def embed(self, tokens: Tensor) -> Tensor:  # [...] -> [..., D]
        return self.vocabulary.embed[tokens]

    def guide(self, features: Tensor) -> Tensor:
        """[B, R, N, D] -> [B, N, D], of the input of the head's linear part."""
        return super().guide(self.vocabulary.hidden(features))

    def _logits(self, features: Tensor) -> Tensor:  # [B, R, N, F] -> [B, N, V]
        return self.head(self.guide(features[..., : self.embed_weight.shape[1]]))

    def head(self, features: Tensor) -> Tensor:  # [..., D] -> [..., V]
        return F.linear(features, self.vocabulary.head, self.vocabulary.bias)

    def _places(self, depths: Tensor) -> Tensor:
        """depths [B R, M] behind the roots -> rotary positions [B R, M], or [B R, M, 3]."""
        if self.positions is None:
            return (self.cache.lengths - self._pads)[:, None] + depths
        token = self._first.repeat_interleave(self.guidance)[:, None] + depths
        return (self.prefix_len - self._pads)[:, None, None] + self.positions[token.clamp(max=self.num_tokens - 1)]

    def _structure(self, tree: DraftTree) -> StructuredTree:
        if self.vocabulary.row_end is None:
            none = tree.tokens[:, :0]
            return StructuredTree(tree.ancestors, none, none.bool())
        image = self._first, self._counts, self.grid[1], self.num_tokens
        return with_row_ends(tree, *image, lambda extra: self.passes.size(extra, tree.tokens.shape[1]))

    def _pass(self, view: TreeView, x: Tensor, positions: Tensor, attends: Tensor) -> tuple[Tensor]:
        """attends [B R, M, M]."""
        return (self._run(x, positions, view.mask(attends), view, self.cache.layers),)

    def _run(self, x: Tensor, positions: Tensor, mask: Tensor, view: KVView, layers: Sequence[int]) -> Tensor:
        """x [B R, T, D], positions [B R, T] or [B R, T, 3], mask [B R, 1, T, S] additive -> features [B R, T, F]."""
        positions = positions.movedim(2, 0) if positions.dim() == 3 else positions
        with kept_inputs(self.transformer.layers, layers) as inputs:
            cache = {"past_key_values": TransformersCache(view), "use_cache": True}
            made = self.transformer(inputs_embeds=x, position_ids=positions, attention_mask=mask, **cache)
        return with_layers(made.last_hidden_state, inputs, layers)

    def _read_example(self, caption: str) -> tuple[list[object], list[object]]:
        return [], [*self.prompts([caption])]  # token ids

    def _prefixes(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """-> ids [B R, P], padded on the left, and how many pads there are [B R]."""
        device, length = self.vocabulary.embed.device, self.prefix_len
        prefixes = [ids for prefix in self.prompts(prompts) for ids in prefix[: self.guidance]]
        ids = torch.tensor([[0] * (length - len(ids)) + ids for ids in prefixes], device=device)
        return ids, torch.tensor([length - len(ids) for ids in prefixes], device=device)

    def _embedded(self, ids: Tensor) -> Tensor:  # [B R, P] -> [B R, P, D]
        return self.transformer.get_input_embeddings()(ids)


def check_reach(config: Any, length: int) -> None:
    """LanternError for a body whose layers see less than `length` tokens, or whose angles depend on the longest place
    of a pass: a pass over drafts reaches further than one over a token."""
    names = ["sliding_window"] * (getattr(config, "use_sliding_window", True) is not False) + ["attention_chunk_size"]
    reach = min([getattr(config, name, None) or length for name in names])
    if reach < length or {*(getattr(config, "layer_types", None) or ())} - ATTENTION:
        raise LanternError(f"it attends otherwise than to all of {length} tokens; write a Target for it")
    rope = getattr(config, "rope_parameters", None) or {}
    for part in (rope, *(part for part in rope.values() if isinstance(part, dict))):  # of kinds of layers
        known = part.get("original_max_position_embeddings") or config.max_position_embeddings
        if part.get("rope_type") in ROPE_BY_LENGTH and length > known:
            raise LanternError(f"its {part['rope_type']} positions change behind {known} tokens; write a Target for it")


def causal(pads: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """pads [B R] on the left, which attend to themselves only -> causal mask [B R, T, T] and positions [B R, T]."""
    positions = torch.arange(length, device=pads.device) - pads[:, None]
    return causal_mask(positions >= 0, length)[:, 0], positions.clamp(min=0)
