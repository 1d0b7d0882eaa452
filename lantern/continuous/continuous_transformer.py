"""LlamaGen's transformer over continuous tokens: latents in place of codes, a diffusion head in place of the output
layer. Its embeddings and lower layers are those of a discrete target, its base, whose weights it shares."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lantern.continuous.code_embedding import CodeEmbedding
from lantern.continuous.continuous_tokenizer import Standardisation
from lantern.continuous.diffusion_head import DiffusionHead
from lantern.models.llamagen.transformer import Transformer


class ContinuousTransformer(Transformer):
    """A Transformer whose tok_embeddings and output read and predict latents; forward takes tokens [B, L, C]."""

    def __init__(
        self, codebook: Tensor, standardisation: Standardisation, trained_layers: int, head: Mapping[str, int],
        architecture: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """codebook: the tokenizer's [V, C]; trained_layers: the upper layers that differ from the base's; head:
        arguments of the DiffusionHead; architecture: the base's."""
        super().__init__(**architecture)
        if not 0 <= trained_layers <= len(self.layers):
            raise ValueError(f"trained_layers={trained_layers} of {len(self.layers)}")
        self.token_dim, self.trained_layers = codebook.shape[1], trained_layers
        self.tok_embeddings = CodeEmbedding(codebook, standardisation, self.dim)
        self.output = DiffusionHead(self.dim, self.token_dim, **head)

    def is_shared(self, name: str) -> bool:
        """Whether the parameter of this name is the base's: embeddings and lower layers."""
        part, _, rest = name.partition(".")
        lower = len(self.layers) - self.trained_layers
        return part in ("cls_embedding", "tok_embeddings") or (part == "layers" and int(rest.partition(".")[0]) < lower)

    def shared_with(self, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The base's weights that are also this one's."""
        return {name: value for name, value in base.items() if self.is_shared(name)}
