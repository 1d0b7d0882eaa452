"""EAGLE-1's drafter (Li et al., 2401.15077): one decoder layer, LlamaGen's on every target, that predicts the next
feature from the embedding of a token and the feature before it; the target's frozen embedding and head do the rest."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.drafters.eagle.layer_fusion import AddedLayers, FusedLayers, LastFeatures
from lantern.models.llamagen.fused import FusedLayer, KVView, linear, precise
from lantern.models.llamagen.transformer import Attention, FeedForward, KeyValues


class EagleNetwork(nn.Module):
    """Row i pairs feature i with token i + 1 and stands at that token's position; its output predicts feature i + 1.

    As in the released drafters: fc reads [embedding; feature], no norm before attention, none at the end.
    """

    def __init__(
        self, dim: int, num_heads: int, hidden_dim: int, eps: float = 1e-5, embedding_rows: int | None = None,
        layers: Sequence[int] = (), adds_layers: bool = False,
    ) -> None:  # fmt: skip
        """embedding_rows: of a frozen embedding of its own, as released drafters have one; None: the target's; layers:
        of the target whose inputs it reads in place of features (EAGLE-3), or, with adds_layers, beside them."""
        super().__init__()
        fusion = AddedLayers if adds_layers else FusedLayers
        self.reads = fusion(dim, layers) if layers else LastFeatures()
        self.embed_weight: Tensor | None
        self.register_buffer("embed_weight", torch.zeros(embedding_rows, dim) if embedding_rows else None)
        self.fc = nn.Linear(2 * dim, dim)
        self.attention = Attention(dim, num_heads)
        self.ffn_norm = nn.RMSNorm(dim, eps=eps)
        self.feed_forward = FeedForward(dim, hidden_dim)

    def embedding(self, target_weight: Tensor) -> Tensor:  # [V, D] -> [V, D]
        """What codes are embedded with: the drafter's own weights, or else the target's."""
        return target_weight if self.embed_weight is None else self.embed_weight.to(target_weight)

    @property
    def entrances(self) -> list[nn.Linear]:
        """The linear maps of [embedding; feature]: the one of all depths."""
        return [self.fc]

    def forward(
        self, embeddings: Tensor, features: Tensor, rotation: Tensor, mask: Tensor | None,
        cache: KeyValues | None = None,
    ) -> Tensor:  # fmt: skip
        """embeddings, features [B, T, D] from `reads` or of this network's own outputs, rotation [B or 1, T, 2, Dh]
        -> [B, T, D]. mask None: plain causal."""
        x = self.fc(torch.cat([embeddings, features], dim=-1))
        x = x + self.attention(x, rotation, mask, cache)
        return x + self.feed_forward(self.ffn_norm(x))


class FusedEagle:
    """An EagleNetwork as decoding runs it: what fc makes of each code's embedding is tabulated."""

    def __init__(self, network: EagleNetwork, embed_weight: Tensor) -> None:
        on_embedding, on_feature = network.fc.weight.chunk(2, dim=1)
        self.table = F.linear(network.embedding(embed_weight), on_embedding, network.fc.bias)  # [V, D]
        self.on_feature = linear(on_feature.contiguous())
        self.layer = FusedLayer(network.attention, None, network.ffn_norm, network.feed_forward)
        self.dtype = precise(embed_weight)

    def __call__(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """tokens [B, T], features [B, R, T, D] -> [B, R, T, D]; see FusedLayer for the others."""
        rows = tokens[:, None].expand(features.shape[:3]).flatten()
        x = self.on_feature(features.flatten(0, 2)).to(self.dtype).add_(self.table[rows])
        return self.layer(x, rotary, mask, view).to(features.dtype).view(features.shape)
