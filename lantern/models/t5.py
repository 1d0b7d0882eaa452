"""Caption features of LlamaGen's released text-to-image models (2406.06525): T5 at 120 tokens, zeros on the left."""

import logging
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, T5EncoderModel

from lantern.errors import FirstWarning
from lantern.models.checkpoints import RANDOM
from lantern.models.conditioners import SCENE_WORDS, WordFeatures
from lantern.models.hf.pretrained import load_pretrained
from lantern.types import AnyText

log = logging.getLogger(__name__)


class T5Features(nn.Module, AnyText):
    """A Conditioner: prompts -> features [B, P, C], visible [B, P], false at pads."""

    def __init__(
        self, encoder: T5EncoderModel, tokenizer: PreTrainedTokenizerBase | None, length: int, weights_hash: str
    ) -> None:
        """tokenizer: None only on the meta device, where nothing is encoded."""
        super().__init__()
        self.encoder, self.tokenizer, self.length = encoder.eval().requires_grad_(False), tokenizer, length
        self.dim, self.weights_hash = encoder.config.d_model, weights_hash
        self._warn = FirstWarning(log)

    @torch.inference_mode()
    def forward(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        texts = [" ".join(prompt.lower().split()) for prompt in prompts]
        typed = partial(self.tokenizer, texts, split_special_tokens=True)  # special tokens in them are text
        for prompt, ids in zip(prompts, typed().input_ids, strict=True):
            if len(ids) > self.length:
                told = "the caption %r has %d tokens; what is behind %d is cut, as of other long captions"
                self._warn(told, prompt, len(ids), self.length)
        batch = typed(max_length=self.length, padding="max_length", truncation=True, return_tensors="pt")
        batch = batch.to(self.encoder.device)
        features = self.encoder(**batch).last_hidden_state
        visible = batch.attention_mask.bool()
        order = visible.int().argsort(dim=1, stable=True)  # pads first, valid rows in their order
        visible = visible.gather(1, order)
        return features.gather(1, order[..., None].expand_as(features)) * visible[..., None], visible


def load_t5(
    checkpoint: str, length: int = 120, dim: int = 2048, setting: str = "model.text_encoder.checkpoint",
    dtype: str = "auto", device: str = "auto",
) -> T5Features | WordFeatures:  # fmt: skip
    """A T5 v1.1 or flan-T5 encoder; with checkpoint=random none, and random features of width `dim` for words."""
    if checkpoint == RANDOM:
        return WordFeatures(SCENE_WORDS, dim, length)
    ignored = ("decoder.", "lm_head.")
    encoder, text, used = load_pretrained(T5EncoderModel, checkpoint, dtype, device, ignored=ignored, setting=setting)
    return T5Features(encoder, text, length, used)
