"""A drafter that predicts all levels at once (ParallelSpec, 2410.05589; Medusa's heads, 2401.10774): EAGLE's decoder
layer reads the root's pair once per level, through a linear map of the level's own, at the level's position."""

import torch
from torch import Tensor, nn

from lantern.drafters.eagle.layer_fusion import LastFeatures
from lantern.models.llamagen.fused import FusedLayer, KVView, linear, precise
from lantern.models.llamagen.transformer import Attention, FeedForward, KeyValues


class ParallelNetwork(nn.Module):
    """Level 0 is EAGLE's row: it predicts the feature behind the pair's token. Level d predicts the d-th behind that,
    without the tokens between."""

    def __init__(self, dim: int, num_heads: int, hidden_dim: int, levels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.reads = LastFeatures()
        self.fc = nn.Linear(2 * dim, dim)
        self.ahead = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(levels - 1))
        self.attention = Attention(dim, num_heads)
        self.ffn_norm = nn.RMSNorm(dim, eps=eps)
        self.feed_forward = FeedForward(dim, hidden_dim)

    def embedding(self, target_weight: Tensor) -> Tensor:  # [V, D] -> [V, D]
        """What codes are embedded with: the target's weights."""
        return target_weight

    @property
    def entrances(self) -> list[nn.Linear]:
        """The linear maps of the levels, level 0's first."""
        return [self.fc, *self.ahead]

    def forward(
        self, embeddings: Tensor, features: Tensor, rotation: Tensor, mask: Tensor | None,
        cache: KeyValues | None = None, level: int = 0,
    ) -> Tensor:  # fmt: skip
        """embeddings, features [B, T, D] of the roots' pairs, rotation [B or 1, T, 2, Dh] of the level's positions."""
        x = self.entrances[level](torch.cat([embeddings, features], dim=-1))
        x = x + self.attention(x, rotation, mask, cache)
        return x + self.feed_forward(self.ffn_norm(x))


class FusedParallel:
    """A ParallelNetwork as decoding runs it: what the levels make of each code's embedding is tabulated."""

    def __init__(self, network: ParallelNetwork, embed_weight: Tensor) -> None:
        halves = [entrance.weight.chunk(2, dim=1) for entrance in network.entrances]
        bias = torch.cat([entrance.bias for entrance in network.entrances])
        table = nn.functional.linear(embed_weight, torch.cat([own for own, _ in halves]), bias)
        self.table = table.unflatten(1, (len(halves), -1))  # [V, levels, D]
        self.on_feature = linear(halves[0][1].contiguous())
        self.on_feature_ahead = linear(torch.cat([own for _, own in halves[1:]])) if len(halves) > 1 else None
        self.layer = FusedLayer(network.attention, None, network.ffn_norm, network.feed_forward)
        self.dtype = precise(embed_weight)

    def pairs(self, tokens: Tensor, features: Tensor) -> Tensor:
        """What the layer reads of committed pairs: tokens [M], features [M, D] -> [M, D]."""
        return self.on_feature(features).to(self.dtype).add_(self.table[tokens, 0])

    def levels(self, tokens: Tensor, features: Tensor, count: int) -> Tensor:
        """What it reads of the levels 1 … count behind the roots: tokens [M], features [M, D] -> [M, count, D]."""
        own = self.table[tokens, 1 : count + 1]
        if self.on_feature_ahead is None or not count:
            return own.to(self.dtype)
        return self.on_feature_ahead(features).to(self.dtype).unflatten(1, (-1, own.shape[2]))[:, :count] + own

    def read(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """Pairs alone: tokens [B, T], features [B, R, T, D] -> [B R, T, D]; see FusedLayer for the others."""
        rows = tokens[:, None].expand(features.shape[:3]).flatten()
        x = self.pairs(rows, features.flatten(0, 2)).unflatten(0, (-1, features.shape[2]))
        return self(x, rotary, mask, view)

    def __call__(self, x: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """x [B R, T, D] -> [B R, T, D]; see FusedLayer for the others."""
        return self.layer(x.flatten(0, 1), rotary, mask, view).view_as(x)
