"""The common part of the drafters that run EAGLE's network over pairs: a target feature and the token behind it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lantern.drafters.eagle.kv_state import FeatureTarget, LayeredTarget, PairPass
from lantern.drafters.eagle.network import EagleNetwork, FusedEagle
from lantern.drafters.eagle.pairs import Pairs
from lantern.engine.cache import DRAFTER_PASS, PrefillView, TreeView, additive
from lantern.engine.graphs import Outputs, Run
from lantern.errors import LanternError
from lantern.models.llamagen.fused import cache_dtype
from lantern.sampling import Sampling
from lantern.trees.adaptive import StatefulTreePolicy
from lantern.types import DraftTree, Forward, Target, TreeLabel, TreePolicy, Verdict


class FeatureDrafter:
    """Implements lantern.types.Drafter except draft(). Per image, `cache` holds keys and values of the pairs already
    read, `pairs` the pairs still to be read. Both exist after allocate()."""

    num_nodes: int

    def __init__(
        self, network: EagleNetwork, target: FeatureTarget, tree: TreePolicy | TreeLabel, sampling: Sampling,
        weights_hash: str, max_pairs: int, ahead: int,
    ) -> None:  # fmt: skip
        """max_pairs: most pairs that a round commits; ahead: tokens that a draft runs behind them."""
        if not isinstance(target, FeatureTarget):
            kind = type(target).__name__
            raise LanternError(f"{kind} shares no positions with a drafter of EAGLE's kind; use drafter=jacobi or none")
        require_layers(target, network.reads.layers)
        self.network, self.target, self.tree = network.eval().requires_grad_(False), target, tree
        self.sampling, self.weights_hash, self._layer = sampling, weights_hash, FusedEagle(network, target.embed_weight)
        self.forwards, self.forward_s = 0, 0.0
        self._max_pairs, self._ahead = max_pairs, ahead
        self._trees = [tree] if isinstance(tree, StatefulTreePolicy) else []

    def allocate(self, batch_size: int) -> None:
        """An empty cache, no pending pairs and fresh tree state for batch_size rows."""
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        if isinstance(target, LayeredTarget):
            target.hand_out(self.network.reads.layers)
        slots, dim = target.prefix_len + target.num_tokens + self._max_pairs + self._ahead, self.network.fc.out_features
        shape = self.network.num_layers, batch_size, target.guidance, slots, heads, dim // heads
        self.cache = target.drafter_caches.allocate(*shape, like.new_empty(0, dtype=cache_dtype(like)))
        self.pairs = Pairs(target.empty_tokens(batch_size, self._max_pairs), target.guidance, like, dim)
        for tree in self._trees:
            tree.allocate(batch_size, target.grid, like.device)

    @torch.inference_mode()
    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """Runs the prefix pairs of admitted rows; the last prefix feature is paired with the first image token later.
        As the target's prefill, that counts as no forward."""
        features = self.network.reads(prefill.features)
        prefix = features.shape[2] - 1
        view = PrefillView(self.cache, rows, prefix)  # which empties the rows also where there are no pairs
        if prefix:
            text = self.target.empty_tokens(len(rows), prefix)  # text rows carry code 0
            causal = torch.ones(1, prefix, prefix, dtype=torch.bool, device=rows.device).tril()
            mask = additive(causal, self.cache.store.dtype).expand(len(rows) * self.target.guidance, -1, -1, -1)
            self._layer(text, features[:, :, :-1], self.target.rotary[None, 1 : prefix + 1], mask, view)
        self.pairs.start(rows, features[:, :, -1])
        for tree in self._trees:
            tree.begin(rows)

    def read_pairs(self, run: Run, roots: Tensor, ahead: int, *inputs: Tensor, settings: tuple) -> Outputs:
        """Completes the pairs committed since the last draft with the roots [B]; run(PairPass, tokens [B, A], features
        [B, R, A, D], *inputs) reads them and commits them to the cache. settings: see PassGraphs."""
        pairs, passes = self.pairs, self.target.passes
        longest = self._max_pairs if passes.has_graphs else max(pairs.counts)
        is_even = min(pairs.counts) == longest and not passes.has_graphs

        def read(view: TreeView, count: Tensor, *inputs: Tensor) -> Outputs:
            return run(PairPass(self.target, view, None if is_even else count, longest, ahead), *inputs)

        given, settings = (pairs.count, *pairs.close(roots, longest), *inputs), (longest, ahead, *settings)
        outputs = DRAFTER_PASS(passes, self.cache, range(longest + ahead), read, *given, settings=settings)
        self.cache.extend(pairs.counts, pairs.count)  # what was written behind the root is overwritten
        return outputs

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the pairs (feature of an accepted node, the token behind it) for the next draft."""
        self.pairs.observe(tree, forward.features, verdict, self.network.reads)
        for policy in self._trees:
            policy.observe(verdict)

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)
        self.pairs.keep(rows)
        for tree in self._trees:
            tree.keep(rows)


def layered(target: Target) -> LayeredTarget:
    """The target as a LayeredTarget; LanternError if it does not hand out the inputs of its layers."""
    if not isinstance(target, LayeredTarget):
        kind = type(target).__name__
        raise LanternError(f"{kind} hands out no inputs of its layers, as recipe=eagle3 needs; use another recipe")
    return target


def require_layers(target: Target, layers: Sequence[int]) -> None:
    if layers and max(layers) >= (count := layered(target).num_layers):
        raise LanternError(f"this drafter reads layers {[*layers]}, this target has {count}; use one made for it")
