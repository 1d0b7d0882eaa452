"""EAGLE drafting (2401.15077, section 4.1): a feature-level drafter expands any tree level by level, guided as in
LANTERN (2410.03355). Committed tokens run through it once, with the target's features, and stay in its cache."""

from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import FeatureDrafter, FeatureTarget, PairPass
from lantern.drafters.eagle.network import EagleNetwork
from lantern.engine.cache import DRAFTER_PASS, TreeView
from lantern.engine.graphs import Outputs
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, TreePolicy


class Eagle(FeatureDrafter):
    """Implements lantern.types.Drafter; the tree policy decides what is expanded."""

    name = "eagle"
    tree: TreePolicy
    _outputs: Tensor  # [B, R, E, D] of this draft's expansions, the root's first
    _attends: Tensor  # [B, E, M] which of the slots behind the root each attends to

    def __init__(
        self, network: EagleNetwork, target: FeatureTarget, tree: TreePolicy, sampling: Sampling, weights_hash: str = ""
    ) -> None:  # fmt: skip
        self.num_nodes, self.depth = tree.num_nodes, tree.depth
        pairs, ahead = tree.depth + 1, tree.num_expanded
        super().__init__(network, target, tree, sampling, weights_hash, pairs, ahead)

    @torch.inference_mode()
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        """roots [B], tokens_left [B] -> DraftTree; the root's pair is committed to the cache here."""
        return self.tree.grow(roots, tokens_left, self._expand, proposals)

    def _expand(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        """tokens [B, W], each behind the expansion with index parents [B, W] -> log q [B, W, V] up to a constant."""
        start = perf_counter()
        self.forwards += 1
        settings = depth, self._layer, self.sampling, self.target.cfg_scale
        if depth == 0:
            made = self.read_pairs(self._root, tokens[:, 0], 0, settings=settings)
        else:
            first = self._outputs.shape[2] - 1  # slots behind the root's that are taken
            slots, run = range(first, first + tokens.shape[1]), partial(self._level, first, depth)
            inputs = tokens, parents, self._outputs, self._attends
            made = DRAFTER_PASS(self.target.passes, self.cache, slots, run, *inputs, settings=settings)
        self._outputs, self._attends, scores = made
        self.forward_s += perf_counter() - start
        return scores

    def _root(self, at: PairPass, tokens: Tensor, features: Tensor) -> Outputs:
        """Runs the pairs committed since the last draft, the root's last -> outputs of all expansions [B, R, E, D], the
        slots behind the root that each attends to [B, E, M], and scores [B, W, V] of the new ones."""
        outputs = at.from_root(self._layer(tokens, features, *at.rotary_and_mask(), at.view))
        none = torch.zeros(len(tokens), 1, self.tree.num_expanded - 1, dtype=torch.bool, device=tokens.device)
        return outputs, none, self._scores(outputs)

    def _level(
        self, first: int, depth: int, view: TreeView, tokens: Tensor, parents: Tensor, outputs: Tensor, attends: Tensor
    ) -> Outputs:
        """One level: tokens [B, W] paired with their parents' outputs, attending to their ancestors; see _root."""
        width, device = tokens.shape[1], tokens.device
        features = outputs.gather(2, parents[:, None, :, None].expand(-1, outputs.shape[1], -1, outputs.shape[3]))
        slots, own = torch.arange(attends.shape[2], device=device), torch.arange(first, first + width, device=device)
        fresh = attends.gather(1, parents[..., None].expand(-1, -1, len(slots))) | (slots == own[:, None])
        positions = (view.lengths + depth).clamp(max=len(self.target.rotary) - 1)[:, None].expand(-1, width)
        rotary = self.target.rotary[positions].repeat_interleave(self.target.guidance, 0)
        made = self._layer(tokens, features, rotary, view.mask(fresh[..., : first + width]), view)
        return torch.cat([outputs, made], dim=2), torch.cat([attends, fresh], dim=1), self._scores(made)

    def _scores(self, outputs: Tensor) -> Tensor:
        """[B, R, W, D] -> log q [B, W, V] up to a constant."""
        return self.sampling.scores(self.target.head(self.target.guide(outputs)))
