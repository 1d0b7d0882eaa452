"""The target of a call of transformers' generate: a loaded model's own body, prefixes as ids, and what may be drawn."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import JanusForConditionalGeneration

from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.families import janus_vocabulary
from lantern.models.hf.generate_calls import Layout, NotCoveredError
from lantern.models.hf.prompt_format import Prefix, PromptIds, fixed
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.types import DraftTree, Forward

CLOSE = 0.1  # of logits' deviation: largest distance from the model's own, in bfloat16 several times what is found
ATTENTIONS = ("eager", "sdpa")  # that read a mask of any form


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
        self.positions, self.allowed, self.sets = (
            None if part is None else part.to(device) for part in (layout.positions, layout.allowed, layout.sets)
        )
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

    @torch.inference_mode()
    def check(self, own: Tensor, prefix: Prefix) -> None:
        """own [V]: the logits of the codes by the model's own forward. NotCoveredError if it does something else."""
        target = self.configured(1.0)
        target.allocate(1, 1)
        prompts: Sequence[Any] = [prefix]
        made = HuggingFaceTarget.prefill(target, prompts, torch.zeros(1, dtype=torch.long, device=own.device))
        found, own = (logits.float() - logits.float().mean() for logits in (made.logits[0, 0], own))
        if not (found - own).norm() <= CLOSE * found.norm():  # nan is not close
            raise NotCoveredError(f"the forward of {type(self.transformer).__name__}'s model changes logits of codes")


def _parts(model: Any, layout: Layout) -> tuple[Any, ImageVocabulary]:
    """The body and what it reads and predicts for each code."""
    if isinstance(model, JanusForConditionalGeneration):
        return model.model.language_model, janus_vocabulary(model)
    body, head = model.get_decoder(), model.get_output_embeddings()
    if any(kind != "full_attention" for kind in getattr(body.config, "layer_types", None) or ()):
        raise NotCoveredError(f"layers of {type(body).__name__} see parts of the sequence")
    embedding, ids = body.get_input_embeddings(), layout.codes.to(head.weight.device)
    first, last = int(ids[0]), int(ids[-1]) + 1
    if last - first == len(ids):  # a view: no second copy of the weights
        weights, bias = head.weight[first:last], None if head.bias is None else head.bias[first:last]
    else:
        weights, bias = head.weight[ids], None if head.bias is None else head.bias[ids]
    with torch.no_grad():
        is_plain = type(embedding) is nn.Embedding and last - first == len(ids)
        embed = embedding.weight[first:last] if is_plain else embedding(ids)  # Gemma's are scaled
        row_end = None if layout.row_end is None else embedding(ids.new_tensor(layout.row_end))
    return body, ImageVocabulary(embed.detach(), weights.detach(), bias, row_end=row_end)
