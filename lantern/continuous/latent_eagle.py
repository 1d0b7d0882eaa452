"""EAGLE drafting (2401.15077) of continuous tokens: its layer predicts the next feature, and the target's own diffusion
head turns features into tokens, under the noise that the target will judge them with."""

from functools import partial
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.continuous.latent_sampling import LatentProposals, TokenHead, check_length
from lantern.drafters.eagle.feature_drafter import FeatureDrafter
from lantern.drafters.eagle.kv_state import FeatureTarget, RootPass
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.jacobi import cut_chain
from lantern.drafters.loading import drafter_folder, eagle_layer
from lantern.engine.cache import DRAFTER_PASS, TreeView
from lantern.engine.graphs import Outputs
from lantern.errors import LanternError
from lantern.models.checkpoints import RANDOM
from lantern.models.llamagen.fused import FusedLayer, KVView, linear, precise
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, TreeLabel

TRAIN = "python train.py task=drafter_continuous"


class FusedLatentEagle:
    """An EagleNetwork as decoding runs it, on the target's embedding of latents."""

    def __init__(self, network: EagleNetwork, target: FeatureTarget) -> None:
        on_embedding, on_feature = network.fc.weight.chunk(2, dim=1)
        self._embed, self._on_embedding, self._bias = target.embed, on_embedding, network.fc.bias
        self._on_feature = linear(on_feature.contiguous())
        self._layer = FusedLayer(network.attention, None, network.ffn_norm, network.feed_forward)
        self._dtype = precise(network.fc.weight)

    def __call__(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor, view: KVView) -> Tensor:
        """tokens [B, T, C], features [B, R, T, D] -> [B, R, T, D]; see FusedLayer for the others."""
        embedded = F.linear(self._embed(tokens), self._on_embedding, self._bias)[:, None]
        x = self._on_feature(features.flatten(0, 2)).to(self._dtype).view(features.shape) + embedded
        return self._layer(x.flatten(0, 2), rotary, mask, view).to(features.dtype).view(features.shape)


class LatentEagle(FeatureDrafter):
    """Implements lantern.types.Drafter. A chain: one forward of the layer and one run of the head for each token."""

    name = "latent_eagle"

    def __init__(
        self, network: EagleNetwork, target: FeatureTarget, sampling: Sampling, length: int, weights_hash: str = ""
    ) -> None:
        """length: of the chain, in tokens."""
        check_length(length)
        self._head, self._layer = TokenHead(target), FusedLatentEagle(network, target)
        self.sigma, self.num_nodes, self.depth = self._head.sigma, length + 1, length
        tree = TreeLabel(f"chain_{length}", "static")
        super().__init__(network, self._layer, target, tree, sampling, weights_hash, length + 1, ahead=length)

    @torch.inference_mode()
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        """draft_probs: the conditions that the drafts were drawn from."""
        if not isinstance(proposals, LatentProposals):
            raise LanternError("drafter=latent_eagle drafts latents; use a verification of latents")
        start, normals = perf_counter(), proposals.normals(self.depth + 1)
        features = self.read_pairs(self._root, roots, 0, settings=())[0]
        tokens, laws = [roots[:, None]], []
        for level in range(self.depth):
            if level:
                run, slots = partial(self._behind, level, tokens[-1], features), range(level - 1, level)
                features = DRAFTER_PASS(self.target.passes, self.cache, slots, run)[0]
            laws.append(self.target.guide(features))
            tokens.append(self._head(laws[-1], normals[:, level : level + 1]).tokens.to(roots.dtype))
        self.forwards += self.depth
        self.forward_s += perf_counter() - start
        return cut_chain(tokens_left, torch.cat(tokens, 1), torch.cat([*laws, laws[-1]], 1))

    def _root(self, at: RootPass, tokens: Tensor, features: Tensor) -> Outputs:
        """Runs the pairs committed since the last draft -> the root's feature [B, R, 1, D]."""
        return (at.from_root(self._layer(tokens, features, *at.rotary_and_mask(), at.view)),)

    def _behind(self, level: int, token: Tensor, features: Tensor, view: TreeView) -> Outputs:
        """The feature behind a drafted token [B, 1, C], which attends to all drafts before it."""
        table, attends = self.target.rotary, torch.ones(len(token), 1, level, dtype=torch.bool, device=token.device)
        positions = (view.lengths + level).clamp(max=len(table) - 1)[:, None]
        rotary = table[positions].repeat_interleave(self.target.guidance, 0)
        return (self._layer(token, features, rotary, view.mask(attends), view),)


def load_latent_eagle(checkpoint: str | Path, length: int, target: FeatureTarget, sampling: Sampling) -> LatentEagle:
    """checkpoint: a folder written by train.py task=drafter_continuous, or "random", to time decoding without one."""
    if checkpoint != RANDOM:
        drafter_folder(checkpoint, target, TRAIN)  # names the command that makes one
    network, name = eagle_layer(checkpoint, target)
    return LatentEagle(network, target, sampling, length, name)
