"""Parallel drafting (ParallelSpec, 2410.05589): the laws of all levels come from one drafter forward, so that all
nodes of a level share one law, and a round's cost does not grow with the tree's depth. ParallelSpec trains mask tokens
that the drafter reads behind the root; here each level reads the root's pair through a linear map of its own."""

from time import perf_counter

import torch
from einops import rearrange
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import FeatureDrafter, require_codes
from lantern.drafters.eagle.kv_state import FeatureTarget, RootPass
from lantern.drafters.eagle.network import FusedParallel, ParallelNetwork
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, TreePolicy


class Parallel(FeatureDrafter):
    """Implements lantern.types.Drafter for any tree no deeper than the network's levels."""

    name = "parallel"
    tree: TreePolicy

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

    @torch.inference_mode()
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        """roots [B], tokens_left [B] -> DraftTree; the pairs up to the root's are committed to the cache here."""
        start = perf_counter()
        self.forwards += 1
        settings = self._layer, self.sampling, self.target.cfg_scale
        (scores,) = self.read_pairs(self._scores, roots, self.depth - 1, roots, settings=settings)  # [B, levels, V]
        self.forward_s += perf_counter() - start

        def expand(tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
            return scores[:, depth : depth + 1].expand(-1, tokens.shape[1], -1)

        return self.tree.grow(roots, tokens_left, expand, proposals)

    def _scores(self, at: RootPass, tokens: Tensor, features: Tensor, roots: Tensor) -> tuple[Tensor]:
        """One forward over the pairs committed since the last draft, the root's last, and behind it the other levels
        -> log q [B, levels, V] up to a constant."""
        guidance, flat = self.target.guidance, rearrange(features, "b r t d -> (b r t) d")
        x = self._layer.pairs(tokens.repeat_interleave(guidance, 0).flatten(), flat)
        last = at.from_root(features)[:, :, 0].flatten(0, 1)
        levels = self._layer.levels(roots.repeat_interleave(guidance, 0), last, at.ahead)
        x = torch.cat([x.view(-1, tokens.shape[1], x.shape[1]), levels], dim=1)
        outputs = self._layer(x, *at.rotary_and_mask(), at.view).to(features.dtype)
        outputs = at.from_root(rearrange(outputs, "(b r) t d -> b r t d", r=guidance))
        return (self.sampling.scores(self.target.head(self.target.guide(outputs))),)
