"""EAGLE drafting (2401.15077, section 4.1): a feature-level drafter expands a tree level by level; any tree, guided as
LANTERN (2410.03355) guides it. Committed tokens are run once, with the target's features, and stay in its cache."""

from time import perf_counter

import torch
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import FeatureDrafter, require_codes
from lantern.drafters.eagle.kv_state import FeatureTarget
from lantern.drafters.eagle.network import EagleNetwork, FusedEagle
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, TreePolicy


class Eagle(FeatureDrafter):
    """Implements lantern.types.Drafter; the tree policy decides what is expanded."""

    name = "eagle"
    tree: TreePolicy

    def __init__(
        self, network: EagleNetwork, target: FeatureTarget, tree: TreePolicy, sampling: Sampling,
        weights_hash: str = "", depth: int | None = None,
    ) -> None:  # fmt: skip
        """depth: of the verified tree, if another drafter makes it deeper than this one's."""
        require_codes(tree, target)
        self._layer = FusedEagle(network, target.embed_weight)
        self.num_nodes, self.depth = tree.num_nodes, tree.depth
        max_pairs = (depth or tree.depth) + 1
        super().__init__(network, self._layer, target, tree, sampling, weights_hash, max_pairs, ahead=tree.num_expanded)

    @torch.inference_mode()
    def draft(self, roots: Tensor, room: Tensor, proposals: Proposals) -> DraftTree:
        """roots [B], room [B] -> DraftTree; the root's pair is committed to the cache here."""
        return self.tree.grow(roots, room, self._expand, proposals)

    def _expand(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        """tokens [B, W] behind the expansions parents [B, W] -> log q [B, W, V] up to a constant."""
        start = perf_counter()
        outputs = self._commit(tokens[:, 0]) if depth == 0 else self._extend(tokens, parents, depth)
        logits = self.target.head(self.target.guide(outputs))
        self.forward_s += perf_counter() - start
        return self.sampling.scores(logits)

    def _commit(self, roots: Tensor) -> Tensor:
        """Runs the pairs committed since the last draft, the root's last. Returns the root's output [B, R, 1, D]."""
        tokens, features = self.pairs.close(roots)
        outputs = self._run(tokens, features, *self.state.reserve(ahead=0))
        self.cache.extend(self.pairs.counts, self.pairs.count)
        self._attends: Tensor | None = None
        self._outputs = self.state.from_root(outputs)  # [B, R, E, D], the root's first
        return self._outputs

    def _extend(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        """One level: tokens [B, W] paired with their parents' outputs, attending to their ancestors -> [B, R, W, D]."""
        attends = self._attends  # [B, E, S] by expansion, the root's first
        attends = self.cache.committed(self.tree.num_expanded) if attends is None else attends
        width, offset = tokens.shape[1], attends.shape[1] - 1
        index = parents[:, None, :, None].expand(-1, self._outputs.shape[1], -1, self._outputs.shape[3])
        features = self._outputs.gather(2, index)
        self.cache.reserve(width, offset)
        positions = (self.cache.lengths + depth).clamp(max=len(self.target.rotary) - 1)[:, None].expand(-1, width)
        rotary = self.target.rotary[positions].repeat_interleave(self.target.guidance, 0)
        outputs = self._run(tokens, features, rotary, self._mask(attends, parents, offset))
        self._outputs = torch.cat([self._outputs, outputs], dim=2)
        return outputs

    def _mask(self, attends: Tensor, parents: Tensor, offset: int) -> Tensor:
        """[B R, 1, W, extent]: an expansion attends to its parent's slots and its own, `offset` behind the root's."""
        mask = attends.gather(1, parents[..., None].expand(-1, -1, attends.shape[2]))
        own = self.cache.lengths[:, None] + offset + torch.arange(parents.shape[1], device=parents.device)
        mask.scatter_(2, own[..., None], 0.0)
        self._attends = torch.cat([attends, mask], dim=1)
        return mask[:, None, :, : self.cache.extent].repeat_interleave(self.target.guidance, 0)

    def _run(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor) -> Tensor:
        """See FusedEagle."""
        self.forwards += 1
        return self._layer(tokens, features, rotary, mask, self.cache)
