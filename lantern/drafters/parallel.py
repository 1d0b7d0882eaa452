"""Parallel drafting (ParallelSpec, 2410.05589): one drafter forward predicts all levels, so its cost does not grow with
the tree's depth; a light map of the drafted tokens then tells the nodes of a level apart. ParallelSpec trains mask
tokens that the drafter reads behind the root. Here each level reads the root's pair through a linear map of its own,
and the pairs above its place in the image."""

from time import perf_counter

import torch
from einops import rearrange
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import FeatureDrafter, require_codes
from lantern.drafters.eagle.kv_state import FeatureTarget, PairPass
from lantern.drafters.eagle.network import FusedParallel, ParallelNetwork
from lantern.engine.graphs import Outputs
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, TreePolicy


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
        require_codes(tree, target)
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
