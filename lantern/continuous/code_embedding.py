"""Latents embedded by a table that was learnt for codes, smoothly: a transformer trained on codes then predicts the
next code from latents at least as well as from codes, which it does not through a linear map of the latents."""

import torch
from torch import Tensor, nn

from lantern.continuous.continuous_tokenizer import Standardisation

WIDTH = 0.1  # of the kernel, in distance of unit vectors; nearest codes are 0.05 away from latents in each channel


class CodeEmbedding(nn.Module):
    """The mean of all codes' embeddings, weighted by a Gaussian of their distance to the latent."""

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
