"""Drafter networks. EAGLE-1's (Li et al., 2401.15077) is one decoder layer, LlamaGen's for every target. It predicts
the next feature from a token's embedding and the feature before it; the target's frozen embedding and head do the
rest. It reads the features after the final norm, or the inputs of several layers mapped to one feature (EAGLE-3,
2503.01840), or the sum of both (ours). The parallel network (ParallelSpec, 2410.05589) predicts all levels at
once."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.models.llamagen.fused import FusedLayer, KVView, linear, precise
from lantern.models.llamagen.transformer import Attention, FeedForward, KeyValues


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
        if min(layers) < 0:
            raise ValueError(f"layers={list(layers)} are no indices of layers")
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
    """The features plus the map of the layers. The map starts at zero, so a drafter already trained on features alone
    continues from where it was."""

    adds = True

    def __init__(self, dim: int, layers: Sequence[int]) -> None:
        super().__init__(dim, layers)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, features: Tensor) -> Tensor:  # [..., F] -> [..., D]
        return features[..., : self.dim] + super().forward(features)


Reads = LastFeatures | FusedLayers


def made_reads(dim: int, layers: Sequence[int], adds_layers: bool) -> Reads:
    """layers: target layers whose inputs a drafter reads in place of features (EAGLE-3) or, with adds_layers, added to
    them."""
    fusion = AddedLayers if adds_layers else FusedLayers
    return fusion(dim, layers) if layers else LastFeatures()


class Stale(NamedTuple):
    """What the target's last pass has left at each place of a window."""

    features: Tensor  # [B, T, D] that the head reads
    embeddings: Tensor  # [B, T, D] of the tokens that the pass had read there
    settled: Tensor  # [B, T] whether the token there is still the one that the pass had read
    known: Tensor  # [B, T] false where it left nothing


class StaleReader(nn.Module):
    """How a drafter for refined windows reads stale features (ours). A map of them is added behind attention: keys and
    values are of the pair alone, and stay right once the place is committed. Where the token has changed, the output is
    mixed with them, channel by channel. It begins as RefinedJacobi's fixed mixture with a share of one half."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * dim, dim, bias=False)
        nn.init.zeros_(self.fc.weight)
        self.share = nn.Parameter(torch.full((dim,), 0.5))  # of the layer's own output

    def added(self, stale: Stale) -> Tensor:  # [B, T, D]
        return self.fc(torch.cat([stale.features, stale.embeddings], dim=-1)) * stale.known[..., None]

    def mixed(self, outputs: Tensor, stale: Stale) -> Tensor:  # [B, T, D]
        share = torch.where(stale.settled[..., None], 0.0, self.share)
        return torch.where(stale.known[..., None], torch.lerp(stale.features, outputs, share), outputs)


class EagleNetwork(nn.Module):
    """Row i pairs feature i with token i + 1 and stands at that token's position; its output predicts feature i + 1.

    As in the released drafters, fc reads [embedding; feature], and there is no norm at the end. Only Anole's has a
    norm before attention.
    """

    def __init__(
        self, dim: int, num_heads: int, hidden_dim: int, eps: float = 1e-5, embedding_rows: int | None = None,
        layers: Sequence[int] = (), adds_layers: bool = False, normed: bool = False, reads_stale: bool = False,
    ) -> None:  # fmt: skip
        """embedding_rows: rows of its own frozen embedding, as in released drafters; None: uses the target's. layers,
        adds_layers: see made_reads. normed: adds a norm before attention and norms of its heads, as in LANTERN's
        drafter for Anole. reads_stale: adds a StaleReader."""
        super().__init__()
        self.reads = made_reads(dim, layers, adds_layers)
        self.embed_weight: Tensor | None
        self.register_buffer("embed_weight", torch.zeros(embedding_rows, dim) if embedding_rows else None)
        self.fc = nn.Linear(2 * dim, dim)
        self.attention_norm = nn.RMSNorm(dim, eps=eps) if normed else None
        self.attention = Attention(dim, num_heads, normed)
        self.ffn_norm = nn.RMSNorm(dim, eps=eps)
        self.feed_forward = FeedForward(dim, hidden_dim)
        self.stale = StaleReader(dim) if reads_stale else None

    def embedding(self, target_weight: Tensor) -> Tensor:  # [V, D] -> [V, D]
        """What codes are embedded with: the drafter's own weights, or else the target's."""
        return target_weight if self.embed_weight is None else self.embed_weight.to(target_weight)

    @property
    def entrances(self) -> list[nn.Linear]:
        """The linear maps of [embedding; feature]: the one of all depths."""
        return [self.fc]

    def correct(self, embeddings: Tensor, before: Tensor, predicted: Tensor) -> Tensor:  # [..., D] each
        """`predicted`, since each pass has read the token before it; see ParallelNetwork."""
        return predicted

    def forward(
        self, embeddings: Tensor, features: Tensor, rotation: Tensor, mask: Tensor | None,
        cache: KeyValues | None = None, stale: Stale | None = None,
    ) -> Tensor:  # fmt: skip
        """embeddings, features [B, T, D] from `reads` or of this network's own outputs, rotation [B or 1, T, 2, Dh]
        -> [B, T, D]. mask None: plain causal."""
        x = self.fc(torch.cat([embeddings, features], dim=-1))
        x = x + self.attention(self.attention_norm(x) if self.attention_norm else x, rotation, mask, cache)
        if stale is None or self.stale is None:
            return x + self.feed_forward(self.ffn_norm(x))
        x = x + self.stale.added(stale)
        return self.stale.mixed(x + self.feed_forward(self.ffn_norm(x)), stale)


class FusedEagle:
    """An EagleNetwork for decoding: a table holds fc's output for the embedding of each code."""

    def __init__(self, network: EagleNetwork, embed_weight: Tensor) -> None:
        on_embedding, on_feature = network.fc.weight.chunk(2, dim=1)
        self.table = F.linear(network.embedding(embed_weight), on_embedding, network.fc.bias)  # [V, D]
        self.on_feature = linear(on_feature.contiguous())
        self.stale = network.stale
        if network.stale:
            on_stale, on_former = network.stale.fc.weight.chunk(2, dim=1)
            self.on_stale = linear(on_stale.contiguous())
            self.former_table = F.linear(network.embedding(embed_weight), on_former)  # [V, D]
        self.layer = FusedLayer(network.attention, network.attention_norm, network.ffn_norm, network.feed_forward)
        self.dtype = precise(embed_weight)

    def read_stale(self, tokens: Tensor, features: Tensor) -> Tensor:
        """StaleReader.added of a pass's features [B, R, W, D], made from tokens [B, W] -> [B, R, W, D]."""
        rows = tokens[:, None].expand(features.shape[:3]).flatten()
        return self.on_stale(features.flatten(0, 2)).to(self.dtype).add_(self.former_table[rows]).view(features.shape)

    def __call__(
        self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor, view: KVView, added: Tensor | None = None
    ) -> Tensor:
        """tokens [B, T], features [B, R, T, D] -> [B, R, T, D]; added [B, R, T, D]: of read_stale, zeros where there is
        none; see FusedLayer for the others."""
        rows = tokens[:, None].expand(features.shape[:3]).flatten()
        x = self.on_feature(features.flatten(0, 2)).to(self.dtype).add_(self.table[rows])
        added = None if added is None else added.flatten(0, 2)
        return self.layer(x, rotary, mask, view, added=added).to(features.dtype).view(features.shape)


class TokenChain(nn.Module):
    """Corrects a level's prediction by the tokens drafted before it, like the recurrent heads of Domino (2605.29707)
    and the Markov head of DSpark (2607.05147), but on features. Initially it changes nothing."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * dim, dim)
        self.norm = nn.RMSNorm(dim, eps=eps)
        self.feed_forward = FeedForward(dim, 2 * dim)
        for weight in (self.fc.weight, self.fc.bias, self.feed_forward.w2.weight):
            nn.init.zeros_(weight)

    def forward(self, embeddings: Tensor, before: Tensor, predicted: Tensor) -> Tensor:
        """embeddings of drafted tokens; before: corrected feature before each; predicted: level's, guided [..., D]."""
        x = self.fc(torch.cat([embeddings, before, predicted], dim=-1))
        return predicted + x + self.feed_forward(self.norm(x))


class ParallelNetwork(nn.Module):
    """Level 0 is EAGLE's row and predicts the next feature. Level d predicts the d-th feature after that, from the
    root's pair and, like SSD's vertical heads (2606.20543), from the pair above its place and that pair's right
    neighbour. `chain` then corrects the prediction by the tokens in between."""

    def __init__(
        self, dim: int, num_heads: int, hidden_dim: int, levels: int, row: int, first: int, eps: float = 1e-5,
        layers: Sequence[int] = (), adds_layers: bool = False,
    ) -> None:  # fmt: skip
        """row: pairs of a row of the image; first: the index of the image's first pair; layers, adds_layers: as of
        made_reads."""
        super().__init__()
        self.row, self.first = row, first
        self.reads = made_reads(dim, layers, adds_layers)
        self.fc = nn.Linear(2 * dim, dim)
        self.ahead = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(levels - 1))
        self.above = nn.Linear(4 * dim, dim, bias=False)
        nn.init.zeros_(self.above.weight)
        self.chain = TokenChain(dim, eps)
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

    def correct(self, embeddings: Tensor, before: Tensor, predicted: Tensor) -> Tensor:  # [..., D] each
        """A level's guided prediction, corrected by its drafted tokens and the corrected features before them."""
        return self.chain(embeddings, before, predicted)

    def forward(
        self, embeddings: Tensor, features: Tensor, rotation: Tensor, mask: Tensor | None,
        cache: KeyValues | None = None, level: int = 0, above: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """embeddings, features [B, T, D] of the roots' pairs, rotation [B or 1, T, 2, Dh] of the level's positions;
        above [B, T, 4 D]: the pairs of places_above, zeros where there is none."""
        x = self.entrances[level](torch.cat([embeddings, features], dim=-1))
        x = x if above is None else x + self.above(above)
        x = x + self.attention(x, rotation, mask, cache)
        return x + self.feed_forward(self.ffn_norm(x))

    def places_above(self, roots: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """roots [...], levels [N] -> indices of the pair above the place that each level predicts and of its right
        neighbour [..., N, 2]; and whether each exists and is complete before the level is drafted."""
        behind = levels[:, None] + 1 + torch.arange(2, device=levels.device) - self.row  # the root
        at = roots[..., None, None] + behind
        return at.clamp(min=0), (at >= self.first) & (behind <= 0)


class FusedParallel:
    """A ParallelNetwork for decoding: a table holds each level's output for the embedding of each code."""

    def __init__(self, network: ParallelNetwork, embed_weight: Tensor) -> None:
        halves = [entrance.weight.chunk(2, dim=1) for entrance in network.entrances]
        bias = torch.cat([entrance.bias for entrance in network.entrances])
        table = nn.functional.linear(embed_weight, torch.cat([own for own, _ in halves]), bias)
        self.table = table.unflatten(1, (len(halves), -1))  # [V, levels, D]
        self.on_feature = linear(halves[0][1].contiguous())
        self.on_feature_ahead = linear(torch.cat([own for _, own in halves[1:]])) if len(halves) > 1 else None
        self.layer = FusedLayer(network.attention, None, network.ffn_norm, network.feed_forward)
        self.above, chain = network.above, network.chain
        on_embedding, *others = chain.fc.weight.chunk(3, dim=1)
        self.chain_table = nn.functional.linear(embed_weight, on_embedding, chain.fc.bias)  # [V, D]
        self.on_before, self.norm = linear(torch.cat(others, dim=1)), chain.norm
        self.gate_up, self.down = linear(chain.feed_forward.gate_up()), linear(chain.feed_forward.w2.weight)
        self.dtype = precise(embed_weight)

    def pairs(self, tokens: Tensor, features: Tensor) -> Tensor:
        """What the layer reads of committed pairs: tokens [M], features [M, D] -> [M, D]."""
        return self.on_feature(features).to(self.dtype).add_(self.table[tokens, 0])

    def levels(self, tokens: Tensor, features: Tensor, above: Tensor) -> Tensor:
        """What it reads of the levels 1 … N behind the roots: tokens [M], features [M, D], above [M, N, 4 D] the
        pairs of places_above, zeros where there is none -> [M, N, D]."""
        count = above.shape[1]
        own = self.table[tokens, 1 : count + 1]
        if self.on_feature_ahead is None or not count:
            return own.to(self.dtype)
        own = own + self.above(above).to(own.dtype)
        return self.on_feature_ahead(features).to(self.dtype).unflatten(1, (-1, own.shape[2]))[:, :count] + own

    def correct(self, tokens: Tensor, before: Tensor, predicted: Tensor) -> Tensor:
        """TokenChain of drafted tokens [B, W]: before [B, W, D], predicted [B, 1, D] -> [B, W, D]."""
        predicted = predicted.expand_as(before)
        x = self.on_before(torch.cat([before, predicted], dim=-1)).add_(self.chain_table[tokens])
        gate, up = self.gate_up(self.norm(x)).chunk(2, dim=-1)
        return predicted + x + self.down(F.silu(gate) * up)

    def read(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """Pairs alone: tokens [B, T], features [B, R, T, D] -> [B R, T, D]; see FusedLayer for the others."""
        rows = tokens[:, None].expand(features.shape[:3]).flatten()
        x = self.pairs(rows, features.flatten(0, 2)).unflatten(0, (-1, features.shape[2]))
        return self(x, rotary, mask, view)

    def __call__(self, x: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """x [B R, T, D] -> [B R, T, D]; see FusedLayer for the others."""
        return self.layer(x.flatten(0, 1), rotary, mask, view).view_as(x)
