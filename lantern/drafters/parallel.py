"""Parallel drafting (ParallelSpec, 2410.05589): one drafter forward predicts all levels, so its cost does not grow with
the tree's depth; a light map of the drafted tokens then tells the nodes of a level apart. ParallelSpec trains mask
tokens that the drafter reads behind the root. Here each level reads the root's pair through a linear map of its own,
and the pairs above its place in the image."""

from collections.abc import Sequence
from time import perf_counter

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.drafters.eagle.feature_drafter import FeatureDrafter
from lantern.drafters.eagle.kv_state import FeatureTarget, PairPass
from lantern.drafters.eagle.network import Caches, PairNetwork, made_reads
from lantern.engine.graphs import Outputs
from lantern.errors import LanternError
from lantern.models.llamagen.fused import FusedLayer, KVView, linear, precise
from lantern.models.llamagen.transformer import Attention, Block, FeedForward
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, TreePolicy


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


class ParallelNetwork(PairNetwork):
    """Level 0 is EAGLE's row and predicts the next feature. Level d predicts the d-th feature after that, from the
    root's pair and, like SSD's vertical heads (2606.20543), from the pair above its place and that pair's right
    neighbour. `chain` then corrects the prediction by the tokens in between."""

    attention_norm = None

    def __init__(
        self, dim: int, num_heads: int, hidden_dim: int, levels: int, row: int, first: int, eps: float = 1e-5,
        layers: Sequence[int] = (), adds_layers: bool = False, num_layers: int = 1,
    ) -> None:  # fmt: skip
        """row: pairs of a row of the image; first: the index of the image's first pair; layers, adds_layers: as of
        made_reads; num_layers: of the drafter, each run once over all levels."""
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
        self.deeper = nn.ModuleList(Block(dim, num_heads, hidden_dim, eps) for _ in range(num_layers - 1))

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
        self, embeddings: Tensor, features: Tensor, rotation: Tensor, mask: Tensor | None, caches: Caches = None,
        level: int = 0, above: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """embeddings, features [B, T, D] of the roots' pairs; above [B, T, 4 D]: the pairs of places_above, zeros where
        there is none; see through_layers for the others, which are of the level's positions."""
        x = self.entrances[level](torch.cat([embeddings, features], dim=-1))
        x = x if above is None else x + self.above(above)
        return self.through_layers(x, rotation, mask, caches)

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
        table = F.linear(embed_weight, torch.cat([own for own, _ in halves]), bias)
        self.table = table.unflatten(1, (len(halves), -1))  # [V, levels, D]
        self.on_feature = linear(halves[0][1].contiguous())
        self.on_feature_ahead = linear(torch.cat([own for _, own in halves[1:]])) if len(halves) > 1 else None
        self.layers = [FusedLayer(layer) for layer in network.layers]
        self.above, chain = network.above, network.chain
        on_embedding, *others = chain.fc.weight.chunk(3, dim=1)
        self.chain_table = F.linear(embed_weight, on_embedding, chain.fc.bias)  # [V, D]
        self.on_before, self.norm = linear(torch.cat(others, dim=1)), chain.norm
        self.gate_up, self.down = linear(chain.feed_forward.gate_up()), linear(chain.feed_forward.w2.weight)
        self.dtype = precise(embed_weight)

    def pairs(self, tokens: Tensor, features: Tensor) -> Tensor:
        """What the first layer reads of committed pairs: tokens [M], features [M, D] -> [M, D]."""
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
        rows = x.flatten(0, 1)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, rotary, mask, view, index)
        return rows.view_as(x)


class Parallel(FeatureDrafter):
    """Implements lantern.types.Drafter for any tree no deeper than the network's levels."""

    name = "parallel"
    tree: TreePolicy
    network: ParallelNetwork
    _tokens: Tensor  # [B, S] of all pairs that were committed
    _features: Tensor  # [B, R, S, D]
    _chain: Tensor  # [B, E, D] corrected features of this draft's expansions, the root's first

    def __init__(
        self, network: ParallelNetwork, target: FeatureTarget, tree: TreePolicy, sampling: Sampling,
        weights_hash: str = "",
    ) -> None:  # fmt: skip
        levels = len(network.entrances)
        if tree.depth > levels:
            raise LanternError(
                f"tree {tree.name} has {tree.depth} levels, this drafter predicts {levels}; give a shallower tree, or "
                f"distil a drafter with: python train.py drafter=parallel distil.student.levels={tree.depth}"
            )
        self._layer = FusedParallel(network, target.embed_weight)
        self.num_nodes, self.depth = tree.num_nodes, tree.depth
        pairs, ahead = self.depth + 1, self.depth
        super().__init__(network, self._layer.read, target, tree, sampling, weights_hash, pairs, ahead)

    def allocate(self, batch_size: int) -> None:
        super().allocate(batch_size)
        slots, pairs = self.target.prefix_len + self.target.num_tokens + self._max_pairs, self.pairs
        self._tokens = self.target.empty_tokens(batch_size, slots)
        self._features = pairs.features.new_zeros(*pairs.features.shape[:2], slots, pairs.features.shape[3])

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self._tokens, self._features = self._tokens[rows], self._features[rows]

    @torch.inference_mode()
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        """roots [B], tokens_left [B] -> DraftTree; the pairs up to the root's are committed to the cache here."""
        start = perf_counter()
        self.forwards += 1
        given, settings = (roots, self._pairs_above(roots)), (self._layer, self.target.cfg_scale)
        (predicted,) = self.read_pairs(self._levels, roots, self.depth - 1, *given, settings=settings)
        self.forward_s += perf_counter() - start

        def expand(tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
            start, settings = perf_counter(), (self._layer, self.sampling)
            if depth == 0:
                self._chain = predicted[:, :1]
                (scores,) = self.target.passes("root", self._scores, self._chain, settings=settings)
            else:
                inputs = tokens, parents, self._chain, predicted[:, depth : depth + 1]
                self._chain, scores = self.target.passes("level", self._corrected, *inputs, settings=settings)
            self.forward_s += perf_counter() - start
            return scores

        return self.tree.grow(roots, tokens_left, expand, proposals)

    def _pairs_above(self, roots: Tensor) -> Tensor:
        """Keeps the pairs that the roots close -> those above the levels' places [B, R, levels - 1, 4 D]."""
        longest, lengths = max(self.pairs.counts), self.cache.lengths[:, None]
        tokens, features = self.pairs.close(roots, longest)
        slots = lengths + torch.arange(longest, device=roots.device)  # those behind an image's last are written again
        self._tokens.scatter_(1, slots, tokens)
        self._features.scatter_(2, slots[:, None, :, None].expand_as(features), features)
        levels = torch.arange(1, self.depth, device=roots.device)
        places, found = self.network.places_above(lengths[:, 0] + self.pairs.count - 1, levels)  # [B, N, 2]
        rows = torch.arange(len(roots), device=roots.device)[:, None, None]
        own = self._features.transpose(1, 2)[rows, places].permute(0, 3, 1, 2, 4)  # [B, R, N, 2, D]
        embedded = self.target.embed(self._tokens[rows, places])[:, None].expand_as(own)
        return (torch.cat([embedded, own], -1) * found[:, None, ..., None]).flatten(3)

    def _scores(self, guided: Tensor) -> tuple[Tensor]:  # [B, W, D] -> log q [B, W, V] up to a constant
        return (self.sampling.scores(self.target.head(guided)),)

    def _corrected(self, tokens: Tensor, parents: Tensor, chain: Tensor, predicted: Tensor) -> Outputs:
        """A level: tokens [B, W] behind the expansions parents [B, W], chain [B, E, D], predicted [B, 1, D]."""
        before = chain.gather(1, parents[..., None].expand(-1, -1, chain.shape[2]))
        own = self._layer.correct(tokens, before, predicted)
        return torch.cat([chain, own], 1), *self._scores(own)

    def _levels(self, at: PairPass, tokens: Tensor, features: Tensor, roots: Tensor, above: Tensor) -> tuple[Tensor]:
        """One forward over the pairs committed since the last draft, ending with the root's, then the other levels ->
        the guided features that the levels predict [B, levels, D]."""
        guidance, flat = self.target.guidance, rearrange(features, "b r t d -> (b r t) d")
        x = self._layer.pairs(tokens.repeat_interleave(guidance, 0).flatten(), flat)
        last = at.from_root(features)[:, :, 0].flatten(0, 1)
        levels = self._layer.levels(roots.repeat_interleave(guidance, 0), last, above.flatten(0, 1))
        x = torch.cat([x.view(-1, tokens.shape[1], x.shape[1]), levels], dim=1)
        outputs = self._layer(x, *at.rotary_and_mask(), at.view).to(features.dtype)
        outputs = at.from_root(rearrange(outputs, "(b r) t d -> b r t d", r=guidance))
        return (self.target.guide(outputs),)
