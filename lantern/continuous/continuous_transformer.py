"""LlamaGen's transformer over continuous tokens: a linear embedding in place of the table of codes, a diffusion head in
place of the output layer. Its lower layers may be those of a discrete target, its base, whose weights they share."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lantern.continuous.diffusion_head import DiffusionHead
from lantern.models.llamagen.transformer import Transformer


class ContinuousTransformer(Transformer):
    """A Transformer whose tok_embeddings and output read and predict latents; forward takes tokens [B, L, C]."""

    def __init__(
        self, token_dim: int, trained_layers: int, head: Mapping[str, int], architecture: Mapping[str, Any]
    ) -> None:
        """trained_layers: the upper layers that differ from the base's; head: arguments of the DiffusionHead;
        architecture: the base's, without vocab_size."""
        super().__init__(**architecture, vocab_size=1)
        if not 0 <= trained_layers <= len(self.layers):
            raise ValueError(f"trained_layers={trained_layers} of {len(self.layers)}")
        self.token_dim, self.trained_layers = token_dim, trained_layers
        self.vocab_size = 2 * self.dim  # the width of conditions, guidance rows side by side
        self.tok_embeddings = nn.Linear(token_dim, self.dim)
        self.output = DiffusionHead(self.dim, token_dim, **head)

    def is_shared(self, name: str) -> bool:
        """Whether the parameter of this name is the base's: prefix embeddings and lower layers."""
        part, _, rest = name.partition(".")
        lower = len(self.layers) - self.trained_layers
        return part == "cls_embedding" or (part == "layers" and int(rest.partition(".")[0]) < lower)

    def shared_with(self, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The base's weights that are also this one's."""
        return {name: value for name, value in base.items() if self.is_shared(name)}
