"""Trains the decoder of a trained tokenizer, whose tokens stay as they are: its targets and drafters go on with it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.models.checkpoints import load_strictly, load_weights
from lantern.training.run.checks import check_architecture
from lantern.training.tokenizer_task import TokenizerTask


class DecoderTask(TokenizerTask):
    """The tokenizer's task without its encoder and codebook; exports the whole tokenizer."""

    def __init__(self, start_from: str, **settings: Any) -> None:
        """start_from: the weights folder of a tokenizer of this architecture; settings: TokenizerTask's. Raises
        CheckpointError."""
        super().__init__(**settings)
        state, config = load_weights(start_from)
        for tokenizer in (self.tokenizer, self.average):
            load_strictly(tokenizer, state, start_from, "give a tokenizer of this architecture as task.start_from")
        check_architecture(start_from, self.config, config)
        for part in (self.tokenizer.encoder, self.tokenizer.quant_conv):
            part.requires_grad_(False)

    def _check_steps(self, steps: int) -> None:
        """The codebook is learned already."""

    def _latents(self, real: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, h, w, C]
        with torch.autocast(real.device.type, enabled=False):  # as in use: rounded ones would have other tokens
            return super()._latents(real)

    def _quantized(self, z: Tensor) -> tuple[Tensor, Tensor]:
        quantize = self.tokenizer.quantize
        return F.embedding(quantize.nearest(z), quantize.codebook), z.new_zeros(())
