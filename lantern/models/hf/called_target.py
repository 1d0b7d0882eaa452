"""The target of a call of transformers' generate: a loaded model's own body, prefixes as ids, and what may be drawn."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import JanusForConditionalGeneration

from lantern.errors import LanternError
from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.families import janus_vocabulary
from lantern.models.hf.prompt_format import Prefix, PromptIds, fixed
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.types import DraftTree, Forward

ATTENTIONS = ("eager", "sdpa")  # that read a mask of any form


class NotCoveredError(LanternError):
    """A call that the model's own generate carries out."""


class Layout(NamedTuple):
    """What is drawn: num_tokens codes, in rows of the grid, between ids that are certain."""

    codes: Tensor  # [V] ids
    num_tokens: int
    grid: tuple[int, int]
    row_end: int | None = None  # the id behind every row but the last
    line: Tensor = torch.empty(0)  # [T] all ids behind the prompt, whichever where codes are drawn
    places: Tensor = torch.empty(0)  # [L] of the codes in it
    allowed: Tensor | None = None  # [K, V] bool: sets of codes; None: all may be drawn everywhere
    sets: Tensor | None = None  # [L] the set of each place
    positions: Tensor | None = None  # [L, 3] rotary, of the codes
    ends: Tensor | None = None  # [E] places in `codes` of those that end an image early; None: there are none


class GivenPrefixes(PromptIds):
    """Ids in place of prompts."""

    def __init__(self, length: int) -> None:
        super().__init__(None, length, [], [], fixed([]))

    def __call__(self, prompts: Sequence[Any]) -> list[Prefix]:
        return list(prompts)


class CalledTarget(HuggingFaceTarget):
    """Its prompts are prefixes of ids. It makes no images of its codes: whoever calls does."""

    def __init__(self, model: Any, layout: Layout, length: int, weights_hash: str = "") -> None:
        """model: a copy of modules that may be changed; length: of the longest prefix."""
        body, vocabulary = _parts(model, layout)
        if body.config._attn_implementation not in ATTENTIONS:
            body.set_attn_implementation("sdpa")
        images = CodeColors(vocabulary.embed, layout.grid)
        super().__init__(body, vocabulary, GivenPrefixes(length), images, layout.grid, 1.0, weights_hash)
        self.num_tokens, device = layout.num_tokens, vocabulary.embed.device
        tensors = (None if part is None else part.to(device) for part in layout[-4:])
        self.allowed, self.sets, self.positions, self.ends = tensors
        self.take(length)

    def prefill(self, prompts: Sequence[Any], rows: Tensor) -> Forward:
        forward = super().prefill(prompts, rows)
        return forward._replace(logits=self._masked(forward.logits, torch.zeros_like(rows)[:, None]))

    def verify(self, tree: DraftTree) -> Forward:
        forward = super().verify(tree)
        return forward._replace(logits=self._masked(forward.logits, self._first[:, None] + tree.depths + 1))

    def _masked(self, logits: Tensor, places: Tensor) -> Tensor:
        """logits [B, N, V] of the tokens at places [B, N] of the image."""
        if self.allowed is None or self.sets is None:
            return logits
        return logits.masked_fill(~self.allowed[self.sets[places.clamp(max=self.num_tokens - 1)]], -torch.inf)


def _parts(model: Any, layout: Layout) -> tuple[Any, ImageVocabulary]:
    """The body and what it reads and predicts for each code."""
    is_janus = isinstance(model, JanusForConditionalGeneration)
    body = model.model.language_model if is_janus else model.get_decoder()
    head = model.model.generation_head.vision_head if is_janus else model.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise NotCoveredError(f"it has {type(head)} where a plain head is needed")
    if is_janus:
        return body, janus_vocabulary(model)
    embedding, ids = body.get_input_embeddings(), layout.codes.to(head.weight.device)
    is_range = int(ids[-1]) - int(ids[0]) + 1 == len(ids)
    at = slice(int(ids[0]), int(ids[-1]) + 1) if is_range else ids  # a view: no second copy of the weights
    weights, bias = head.weight[at], None if head.bias is None else head.bias[at]
    with torch.no_grad():
        embed = embedding.weight[at] if type(embedding) is nn.Embedding else embedding(ids)  # Gemma's are scaled
        row_end = None if layout.row_end is None else embedding(ids.new_tensor(layout.row_end))
    return body, ImageVocabulary(embed.detach(), weights.detach(), bias, row_end=row_end)
