"""Caption features of the released LlamaGen text-to-image models (2406.06525): a T5 encoder at 120 tokens, padded on
the left with zeros."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, T5Config, T5EncoderModel

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
        for prompt, ids in zip(prompts, self.tokenizer(texts).input_ids, strict=True):
            if len(ids) > self.length:
                told = "the caption %r has %d tokens; what is behind %d is cut, as of other long captions"
                self._warn(told, prompt, len(ids), self.length)
        batch = self.tokenizer(
            texts, max_length=self.length, padding="max_length", truncation=True, return_tensors="pt"
        ).to(self.encoder.device)
        features = self.encoder(**batch).last_hidden_state
        visible = batch.attention_mask.bool()
        order = visible.int().argsort(dim=1, stable=True)  # pads first, valid rows in their order
        visible = visible.gather(1, order)
        return features.gather(1, order[..., None].expand_as(features)) * visible[..., None], visible


def load_t5(
    checkpoint: str, hidden_size: int = 2048, head_dim: int = 64, feed_forward_dim: int = 5120, num_layers: int = 24,
    num_heads: int = 32, length: int = 120, vocab_size: int = 32128, setting: str = "model.text_encoder.checkpoint",
    dtype: str = "auto", device: str = "auto",
) -> T5Features | WordFeatures:  # fmt: skip
    """A T5 v1.1 or flan-T5 encoder; the defaults are flan-t5-xl's sizes. checkpoint=random: no encoder; scene captions
    become random word features of its width."""
    if checkpoint == RANDOM and device != "meta":
        return WordFeatures(SCENE_WORDS, hidden_size, length)
    config = T5Config(
        vocab_size=vocab_size, d_model=hidden_size, d_kv=head_dim, d_ff=feed_forward_dim, num_layers=num_layers,
        num_heads=num_heads, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
    )  # fmt: skip
    encoder, text, digest = load_pretrained(
        T5EncoderModel, config, checkpoint, dtype, device, ignored=("decoder.", "lm_head."), setting=setting,
        bytes_per_parameter=9,  # of the encoder: released files are in float32 and hold the decoder as well
    )  # fmt: skip
    return T5Features(encoder, text, length, digest)
