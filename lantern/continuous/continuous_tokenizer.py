"""Images as continuous tokens: the unquantised latents of a VQ tokenizer, standardised per channel, and back."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.token_grid import square


class Standardisation(nn.Module):
    """Latents to tokens of about unit variance, channel by channel."""

    mean: Tensor  # [C]
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not min(std) > 0:
            raise ValueError(f"mean={mean} and std={std} standardise nothing")
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, latents: Tensor) -> Tensor:  # [..., C] -> [..., C]
        return (latents - self.mean) / self.std

    def latents(self, tokens: Tensor) -> Tensor:  # [..., C] -> [..., C]
        """Unit vectors, which is all that the tokenizer's decoder was trained on: tokens as they are drawn have noise,
        and are brought back to the sphere."""
        return F.normalize(tokens.to(self.mean) * self.std + self.mean, dim=-1)


class ContinuousTokenizer(nn.Module):
    """A VQ tokenizer without its quantisation."""

    def __init__(self, tokenizer: VQTokenizer, standardisation: Standardisation) -> None:
        super().__init__()
        channels, constants = tokenizer.codebook.shape[1], len(standardisation.mean)
        if channels != constants:
            raise ValueError(f"{constants} channels are standardised, the tokenizer has {channels}")
        self.tokenizer, self.standardisation = tokenizer, standardisation.to(tokenizer.codebook.device)

    @property
    def codebook(self) -> Tensor:
        """[V, C] the tokenizer's codes as tokens."""
        return self.standardisation(self.tokenizer.codebook)

    def encode(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, L, C]
        """Tokens of images in [0, 1], in raster order."""
        return self.standardisation(self.tokenizer.latents(images)).flatten(1, 2)

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L, C] -> [B, 3, H, W]
        """Images in [0, 1] of a square grid of tokens."""
        latents = self.standardisation.latents(square(tokens)).to(self.tokenizer.codebook.dtype)
        return ((self.tokenizer.render(latents) + 1) / 2).clamp(0, 1)
