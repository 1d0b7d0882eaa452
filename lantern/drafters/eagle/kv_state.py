"""The state of a drafter that reads pairs, by image: keys and values of the pairs it has read, the pairs it has yet to
read, and the state of its tree policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.drafters.eagle.network import EagleNetwork, ParallelNetwork
from lantern.drafters.eagle.pairs import Pairs
from lantern.engine.cache import DRAFTER_PASS, PrefillView, ReusableCache, TreeView, additive
from lantern.engine.graphs import Outputs
from lantern.models.llamagen.fused import cache_dtype
from lantern.trees.adaptive import StatefulTreePolicy
from lantern.types import DraftTree, Forward, Target, TreeLabel, TreePolicy, Verdict


@runtime_checkable
class FeatureTarget(Target, Protocol):
    """A target whose features and positions a drafter can share."""

    prefix_len: int  # P
    rotation: Tensor  # [P + L, 2, Dh] cosines and signed sines of each position
    rotary: Tensor  # [P + L, 2, 1, Dh / 2] the same as complex factors of queries and keys
    drafter_caches: ReusableCache


@runtime_checkable
class LayeredTarget(FeatureTarget, Protocol):
    """A target that hands out the inputs of its layers."""

    num_layers: int

    def hand_out(self, layers: Sequence[int]) -> None: ...  # behind the features, in passes until the next allocate


@dataclass(frozen=True)
class RootPass:
    """Slots for the A closed pairs, the last of each image being the root's, and for `ahead` tokens behind the root, in
    a chain."""

    target: FeatureTarget
    view: TreeView
    count: Tensor | None  # [B] pairs of each image; None: all have A
    longest: int  # A
    ahead: int

    def rotary_and_mask(self) -> tuple[Tensor, Tensor]:
        """-> the slots' rotary factors and mask, causal within an image."""
        table, lengths, last = self.target.rotary, self.view.lengths[:, None], self.longest - 1
        offsets = torch.arange(self.longest + self.ahead, device=lengths.device)
        positions, attends = offsets, offsets <= offsets[:, None]
        if self.count is not None:  # padding behind an image's last pair is attended to by itself only
            is_pair, own = offsets <= last, self.count[:, None] - 1
            positions = torch.where(is_pair, torch.minimum(offsets, own), own + offsets - last)
            attends = attends & ((~is_pair | (offsets <= own))[:, None] | (offsets == offsets[:, None]))
        rotary = table[(lengths + 1 + positions).clamp(max=len(table) - 1)]
        mask = self.view.mask(attends.expand(len(lengths), -1, -1))
        return rotary if len(rotary) == 1 else rotary.repeat_interleave(self.target.guidance, 0), mask

    def rerun_window(self, rotary: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, TreeView]:
        """For another pass over the tokens behind the root alone, which overwrites theirs: of what placed() gave their
        part, and their slots."""
        self.view.reserve(self.ahead, self.longest)
        return rotary[:, self.longest :], mask[:, :, self.longest :], self.view

    def from_root(self, outputs: Tensor) -> Tensor:
        """outputs [B, R, A + ahead, D] of the slots -> the root's and those behind it [B, R, 1 + ahead, D]."""
        if self.count is None:  # contiguous
            return outputs[:, :, self.longest - 1 :]
        rows = torch.arange(len(outputs), device=outputs.device)
        root = outputs[rows, :, self.count - 1].unsqueeze(2)
        return torch.cat([root, outputs[:, :, self.longest :]], dim=2)


class DrafterState:
    """`cache` and `pairs` exist once it is allocated."""

    def __init__(
        self, network: EagleNetwork | ParallelNetwork, target: FeatureTarget, tree: TreePolicy | TreeLabel,
        max_pairs: int, ahead: int,
    ) -> None:  # fmt: skip
        """max_pairs: that a round can commit; ahead: tokens that a draft runs behind them."""
        self.network, self.target, self.max_pairs, self.ahead = network, target, max_pairs, ahead
        self._trees = [tree] if isinstance(tree, StatefulTreePolicy) else []

    @property
    def _slots(self) -> int:
        return self.target.prefix_len + self.target.num_tokens + self.max_pairs + self.ahead

    def allocate(self, batch_size: int) -> None:
        """An empty cache, no pairs, and fresh tree state for batch_size rows."""
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        slots, dim = self._slots, self.network.fc.out_features
        kept = like.new_empty(0, dtype=cache_dtype(like))
        self.cache = target.drafter_caches.allocate(1, batch_size, target.guidance, slots, heads, dim // heads, kept)
        empty = target.empty_tokens(batch_size, self.max_pairs)
        self.pairs = Pairs(empty, target.guidance, like, dim)
        for tree in self._trees:
            tree.allocate(batch_size, target.grid, like.device)

    def begin(self, prefill: Forward, rows: Tensor, read: Callable[..., object]) -> None:
        """Admitted rows: runs their prefix pairs; the last prefix feature is paired with the first image token later.
        read: as FusedEagle's call."""
        features = self.network.reads(prefill.features)
        prefix = features.shape[2] - 1
        view = PrefillView(self.cache, rows, prefix)
        if prefix:
            text = self.target.empty_tokens(len(rows), prefix)  # text rows carry code 0
            causal = torch.ones(1, prefix, prefix, dtype=torch.bool, device=rows.device).tril()
            mask = additive(causal, self.cache.store.dtype).expand(len(rows) * self.target.guidance, -1, -1, -1)
            read(text, features[:, :, :-1], self.target.rotary[None, 1 : prefix + 1], mask, view)
        self.pairs.start(rows, features[:, :, -1])
        for tree in self._trees:
            tree.begin(rows)

    def read(self, run: Callable[..., Outputs], roots: Tensor, ahead: int, *inputs: Tensor, settings: tuple) -> Outputs:
        """The roots [B] close the pairs committed since the last draft, which run(RootPass, tokens [B, A], features
        [B, R, A, D], *inputs) reads and commits to the cache; settings: see PassGraphs."""
        pairs, passes = self.pairs, self.target.passes
        longest = self.max_pairs if passes.has_graphs else max(pairs.counts)
        is_even = min(pairs.counts) == longest and not passes.has_graphs

        def read(view: TreeView, count: Tensor, *inputs: Tensor) -> Outputs:
            return run(RootPass(self.target, view, None if is_even else count, longest, ahead), *inputs)

        given, settings = (pairs.count, *pairs.close(roots, longest), *inputs), (longest, ahead, *settings)
        outputs = DRAFTER_PASS(passes, self.cache, range(longest + ahead), read, *given, settings=settings)
        self.cache.extend(pairs.counts, pairs.count)  # what was written behind the root is overwritten
        return outputs

    def observe(
        self, tree: DraftTree, features: Tensor, verdict: Verdict, read: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Keeps the pairs of the accepted path, as Pairs.observe, and updates the tree policy."""
        self.pairs.observe(tree, features, verdict, read)
        for policy in self._trees:
            policy.observe(verdict)

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        self.cache.keep(rows)
        self.pairs.keep(rows)
        for tree in self._trees:
            tree.keep(rows)
