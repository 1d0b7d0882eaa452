"""Drafter networks. EAGLE-1's (Li et al., 2401.15077) is one decoder layer, LlamaGen's for every target. It predicts
the next feature from a token's embedding and the feature before it; the target's frozen embedding and head do the
rest. It reads the features after the final norm, or the inputs of several layers mapped to one feature (EAGLE-3,
2503.01840), or the sum of both (ours)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.models.llamagen.fused import FusedLayer, KVView, Norm, linear, precise
from lantern.models.llamagen.transformer import Attention, Block, FeedForward, KeyValues

Caches = Sequence[KeyValues | None] | None  # of each layer, in place of a mask


class LastFeatures(nn.Module):
    """What the head reads."""

    layers: tuple[int, ...] = ()  # whose inputs the target is to hand out
    adds = False

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return features

    def with_head(self, features: Tensor) -> Tensor:  # [..., F] -> [K, ..., D]
        """First what the head reads; then what the drafter reads, if it differs."""
        return features[None]


class FusedLayers(nn.Module):
    """A linear layer over the inputs of some of the target's layers; those of EAGLE-3 are a low, a middle and a high
    one. Each is normalised first: their scales differ by layer, and large ones make the map's training diverge."""

    adds = False  # the features of LastFeatures

    def __init__(self, dim: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.layers = dim, tuple(layers)
        self.fc = nn.Linear(len(layers) * dim, dim)

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return self.fc(self.normed(features))

    def normed(self, features: Tensor) -> Tensor:  # [..., F] -> [..., F - D]
        """The inputs of all layers, each with a root mean square of 1."""
        inputs = features[..., self.dim :].unflatten(-1, (len(self.layers), self.dim))
        return F.rms_norm(inputs, (self.dim,), eps=1e-5).flatten(-2)

    def with_head(self, features: Tensor) -> Tensor:  # [..., F] -> [K, ..., D]
        return torch.stack([features[..., : self.dim], self(features)])


class AddedLayers(FusedLayers):
    """The features plus the map of the layers, which starts at zero: a drafter trained on features alone continues."""

    adds = True

    def __init__(self, dim: int, layers: Sequence[int]) -> None:
        super().__init__(dim, layers)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return features[..., : self.dim] + super().forward(features)


class EagleNetwork(nn.Module):
    """Row i pairs feature i with token i + 1 and stands at that token's position; its output predicts feature i + 1.

    As in the released drafters, fc reads [embedding; feature], and there is no norm at the end. Only Anole's has a
    norm before attention.
    """

    def __init__(
        self, dim: int, num_heads: int, hidden_dim: int, eps: float = 1e-5, embedding_rows: int | None = None,
        layers: Sequence[int] = (), adds_layers: bool = False, normed: bool = False, num_layers: int = 1,
        input_norms: bool = False,
    ) -> None:  # fmt: skip
        """embedding_rows: rows of its own frozen embedding, as in released drafters; None: uses the target's. layers:
        of the target, whose inputs are read in place of features (EAGLE-3) or, with adds_layers, added to them.
        normed: adds a norm before attention and norms of its heads, as in LANTERN's drafter for Anole. num_layers: of
        the drafter; each has keys and values of its own. input_norms: embeddings and features have norms of their own
        before fc (EAGLE-3.1, 2605.09992): embeddings are often smaller by far, and would be learnt later."""
        super().__init__()
        fusion = AddedLayers if adds_layers else FusedLayers
        self.reads: LastFeatures | FusedLayers = fusion(dim, layers) if layers else LastFeatures()
        self.embed_weight: Tensor | None
        self.register_buffer("embed_weight", torch.zeros(embedding_rows, dim) if embedding_rows else None)
        norms = (nn.RMSNorm(dim, eps=eps) if input_norms else nn.Identity() for _ in range(2))
        self.embedding_norm, self.feature_norm = norms
        self.fc = nn.Linear(2 * dim, dim)
        self.attention_norm = nn.RMSNorm(dim, eps=eps) if normed else None
        self.attention = Attention(dim, num_heads, normed)
        self.ffn_norm = nn.RMSNorm(dim, eps=eps)
        self.feed_forward = FeedForward(dim, hidden_dim)
        self.deeper = nn.ModuleList(Block(dim, num_heads, hidden_dim, eps) for _ in range(num_layers - 1))

    @property
    def layers(self) -> list["EagleNetwork | Block"]:
        return [self, *self.deeper]

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def input_norms(self) -> bool:
        return isinstance(self.feature_norm, nn.RMSNorm)

    def append_layer(self) -> Block:
        """A layer behind the last, on the first one's device."""
        sizes = self.fc.out_features, self.attention.num_heads, self.feed_forward.w1.out_features
        self.deeper.append(layer := Block(*sizes, self.ffn_norm.eps or 1e-5).to(self.fc.weight))
        return layer

    def embedding(self, target_weight: Tensor) -> Tensor:  # [V, D] -> [V, D]
        """What codes are embedded with: the drafter's own weights, or else the target's."""
        return target_weight if self.embed_weight is None else self.embed_weight.to(target_weight)

    def joined(self, embeddings: Tensor, features: Tensor) -> Tensor:  # [..., D], [..., D] -> [..., 2 D]
        """What fc reads."""
        return torch.cat([self.embedding_norm(embeddings), self.feature_norm(features)], dim=-1)

    def forward(
        self, embeddings: Tensor, features: Tensor, rotation: Tensor, mask: Tensor | None, caches: Caches = None
    ) -> Tensor:
        """embeddings, features [B, T, D] from `reads` or of this network's own outputs, rotation [B or 1, T, 2, Dh]
        -> [B, T, D]. mask None: plain causal."""
        x = self.fc(self.joined(embeddings, features))
        for layer, cache in zip(self.layers, caches or [None] * self.num_layers, strict=True):
            x = x + layer.attention(layer.attention_norm(x) if layer.attention_norm else x, rotation, mask, cache)
            x = x + layer.feed_forward(layer.ffn_norm(x))
        return x


class FusedEagle:
    """An EagleNetwork for decoding: a table holds fc's output for the embedding of each code."""

    def __init__(self, network: EagleNetwork, embed_weight: Tensor) -> None:
        on_embedding, on_feature = network.fc.weight.chunk(2, dim=1)
        codes = network.embedding_norm(network.embedding(embed_weight))
        self.table = F.linear(codes, on_embedding, network.fc.bias)  # [V, D]
        norm = network.feature_norm
        self.feature_norm = Norm(norm) if isinstance(norm, nn.RMSNorm) else norm
        self.on_feature = linear(on_feature.contiguous())
        self.layers = [FusedLayer(layer) for layer in network.layers]
        self.dtype = precise(embed_weight)

    def __call__(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """tokens [B, T], features [B, R, T, D] -> [B, R, T, D]; see FusedLayer for the others."""
        rows = tokens[:, None].expand(features.shape[:3]).flatten()
        x = self.on_feature(self.feature_norm(features.flatten(0, 2))).to(self.dtype).add_(self.table[rows])
        for index, layer in enumerate(self.layers):
            x = layer(x, rotary, mask, view, index)
        return x.to(features.dtype).view(features.shape)
