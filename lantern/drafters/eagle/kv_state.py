"""The state of a drafter that reads pairs, by image: keys and values of the pairs it has read, the pairs it has yet to
read, and the state of its tree policy."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.eagle.pairs import Pairs
from lantern.drafters.parallel_network import ParallelNetwork
from lantern.models.cache import PrefillView, ReusableCache, additive
from lantern.models.llamagen.fused import cache_dtype
from lantern.types import DraftTree, Forward, StatefulTreePolicy, Target, TreeLabel, TreePolicy, Verdict


@runtime_checkable
class FeatureTarget(Target, Protocol):
    """A target whose features and positions a drafter can share."""

    prefix_len: int  # P
    rotation: Tensor  # [P + L, 2, Dh] cosines and signed sines of each position
    rotary: Tensor  # [P + L, 2, 1, Dh / 2] the same as complex factors of queries and keys


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
    def image_bytes(self) -> int:
        """What allocate holds for an image."""
        like, row = self.network.fc.weight, self.target.guidance * self.network.fc.out_features
        return row * (2 * self._slots * cache_dtype(like).itemsize + self.max_pairs * like.itemsize)

    @property
    def _slots(self) -> int:
        return self.target.prefix_len + self.target.num_tokens + self.max_pairs + self.ahead

    def allocate(self, batch_size: int) -> None:
        """An empty cache, no pairs, and fresh tree state for batch_size rows."""
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        slots, dim = self._slots, self.network.fc.out_features
        kept = like.new_empty(0, dtype=cache_dtype(like))
        self.cache = ReusableCache().allocate(1, batch_size, target.guidance, slots, heads, dim // heads, kept)
        self.pairs = Pairs(batch_size, self.max_pairs, target.guidance, like, dim)
        for tree in self._trees:
            tree.allocate(batch_size, target.grid, like.device)

    def begin(self, prefill: Forward, rows: Tensor, read: Callable[..., object]) -> int:
        """Admitted rows: runs their prefix pairs; the last prefix feature is paired with the first image token later.
        read: as FusedEagle's call. Returns the number of forwards."""
        prefix = prefill.features.shape[2] - 1
        view = PrefillView(self.cache, rows, prefix)
        if prefix:
            text = rows.new_zeros(len(rows), prefix)  # text rows carry code 0
            causal = torch.ones(1, prefix, prefix, dtype=torch.bool, device=rows.device).tril()
            mask = additive(causal, self.cache.store.dtype).expand(len(rows) * self.target.guidance, -1, -1, -1)
            read(text, prefill.features[:, :, :-1], self.target.rotary[None, 1 : prefix + 1], mask, view)
        self.pairs.start(rows, prefill.features[:, :, -1])
        for tree in self._trees:
            tree.begin(rows)
        return int(prefix > 0)

    def reserve(self, ahead: int) -> tuple[Tensor, Tensor]:
        """Reserves slots for the A closed pairs, the last of each image being the root's, and for `ahead` tokens behind
        the root, in a chain -> their rotary factors and mask. The mask is causal within an image."""
        longest, lengths = max(self.pairs.counts), self.cache.lengths[:, None]
        offsets = torch.arange(longest + ahead, device=lengths.device)
        positions, attends = offsets, offsets <= offsets[:, None]
        if min(self.pairs.counts) < longest:  # padding behind an image's last pair is attended to by itself only
            is_pair, last = offsets < longest, self.pairs.count[:, None] - 1
            positions = torch.where(is_pair, torch.minimum(offsets, last), last + offsets - (longest - 1))
            attends = attends & ((~is_pair | (offsets <= last))[:, None] | (offsets == offsets[:, None]))
        rotary = self.target.rotary[(lengths + 1 + positions).clamp(max=len(self.target.rotary) - 1)]
        self.cache.reserve(len(offsets))
        mask = self.cache.mask(attends.expand(len(lengths), -1, -1))
        return rotary if len(rotary) == 1 else rotary.repeat_interleave(self.target.guidance, 0), mask

    def from_root(self, outputs: Tensor) -> Tensor:
        """outputs [B, R, A + ahead, D] of the reserved slots -> the root's and those behind it [B, R, 1 + ahead, D]."""
        longest = max(self.pairs.counts)
        if min(self.pairs.counts) == longest:  # contiguous
            return outputs[:, :, longest - 1 :]
        root = outputs[self.pairs.rows, :, self.pairs.count - 1].unsqueeze(2)
        return torch.cat([root, outputs[:, :, longest:]], dim=2)

    def observe(self, tree: DraftTree, forward: Forward, verdict: Verdict) -> None:
        """Keeps the pairs of the accepted path and updates the tree policy."""
        self.pairs.observe(tree, forward, verdict)
        for policy in self._trees:
            policy.observe(verdict)

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        self.cache.keep(rows)
        self.pairs.keep(rows)
        for tree in self._trees:
            tree.keep(rows)
