"""LlamaGen's transformer over continuous tokens: the standardised latents of its VQ tokenizer, not quantised, in place
of codes, and a diffusion head in place of the output layer. Its embeddings and lower layers are those of a discrete
target, its base, whose weights it shares."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.continuous.diffusion_head import DiffusionHead
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer
from lantern.models.token_grid import square

WIDTH = 0.1  # of the kernel, in distance of unit vectors; nearest codes are 0.05 away from latents in each channel


class Standardisation(nn.Module):
    """Latents to tokens of about unit variance, channel by channel."""

    mean: Tensor  # [C]
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, latents: Tensor) -> Tensor:  # [..., C] -> [..., C]
        return (latents - self.mean) / self.std

    def latents(self, tokens: Tensor) -> Tensor:  # [..., C] -> [..., C]
        """Unit vectors, as the tokenizer's decoder was trained on: drawn tokens, which have noise, are projected."""
        return F.normalize(tokens.to(self.mean) * self.std + self.mean, dim=-1)


class ContinuousTokenizer(nn.Module):
    """A VQ tokenizer without its quantisation."""

    def __init__(self, tokenizer: VQTokenizer, standardisation: Standardisation) -> None:
        super().__init__()
        self.tokenizer, self.standardisation = tokenizer, standardisation.to(tokenizer.codebook.device)

    @property
    def codebook(self) -> Tensor:
        """[V, C] the tokenizer's codes as tokens."""
        return self.standardisation(self.tokenizer.codebook)

    def encode(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, L, C]
        return self.standardisation(self.tokenizer.latents(images)).flatten(1, 2)

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L, C] -> [B, 3, H, W]
        latents = self.standardisation.latents(square(tokens)).to(self.tokenizer.codebook.dtype)
        return ((self.tokenizer.render(latents) + 1) / 2).clamp(0, 1)


class CodeEmbedding(nn.Module):
    """Latents embedded by a table that was learnt for codes: the mean of all codes' embeddings, weighted by a Gaussian
    of their distance to the latent. From this a transformer trained on codes predicts at least as well as
    from codes; from a linear map of the latents it does not."""

    codebook: Tensor  # [V, C] unit rows

    def __init__(self, codebook: Tensor, standardisation: Standardisation, dim: int) -> None:
        super().__init__()
        self.standardisation = standardisation
        self.register_buffer("codebook", codebook, persistent=False)
        self.weight = nn.Parameter(torch.zeros(len(codebook), dim))  # [V, D]

    def forward(self, tokens: Tensor) -> Tensor:  # [..., C] -> [..., D]
        with torch.autocast(tokens.device.type, enabled=False):  # rounded cosines would be other weights
            cosine = self.standardisation.latents(tokens) @ self.codebook.T  # squared distances are 2 - 2 cosine
            return (cosine / WIDTH**2).softmax(-1).to(self.weight.dtype) @ self.weight


class ContinuousTransformer(Transformer):
    """A Transformer whose tok_embeddings and output read and predict latents; forward takes tokens [B, L, C]."""

    def __init__(
        self, codebook: Tensor, standardisation: Standardisation, trained_layers: int, head: Mapping[str, int],
        architecture: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """codebook: the tokenizer's [V, C]; trained_layers: the upper layers that differ from the base's; head:
        arguments of the DiffusionHead; architecture: the base's."""
        super().__init__(**architecture)
        self.token_dim, self.trained_layers = codebook.shape[1], trained_layers
        self.tok_embeddings = CodeEmbedding(codebook, standardisation, self.dim)
        self.output = DiffusionHead(self.dim, self.token_dim, **head)

    def is_shared(self, name: str) -> bool:
        """Whether the parameter of this name is the base's: embeddings and lower layers."""
        part, _, rest = name.partition(".")
        lower = len(self.layers) - self.trained_layers
        return part in ("cls_embedding", "tok_embeddings") or (part == "layers" and int(rest.partition(".")[0]) < lower)
