"""What a drafter that reads pairs keeps of each image: keys and values of the pairs it has read, those it has yet to
read, and what its tree learns from rounds."""

from collections.abc import Callable

import torch
from torch import Tensor

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.eagle.pairs import Pairs
from lantern.drafters.parallel_network import ParallelNetwork
from lantern.errors import LanternError
from lantern.models.cache import KVCache, PrefillView, additive
from lantern.models.llamagen.fused import cache_dtype
from lantern.types import DraftTree, Forward, StatefulTreePolicy, Target, TreePolicy, Verdict


def require_codes(tree: TreePolicy, target: Target) -> None:
    """Raises LanternError for a node with more children than there are codes."""
    if tree.width > target.vocab_size:
        raise LanternError(
            f"a node of tree {tree.name} has {tree.width} children, more than the {target.vocab_size} codes"
        )


class DrafterMemory:
    """`cache` and `pairs` are there once it is allocated."""

    def __init__(
        self, network: EagleNetwork | ParallelNetwork, target: Target, tree: TreePolicy, most: int, ahead: int
    ) -> None:
        """most: pairs that a round can commit; ahead: rows that a draft runs behind them."""
        self.network, self.target, self.most, self.ahead = network, target, most, ahead
        self._trees = [tree] if isinstance(tree, StatefulTreePolicy) else []

    @property
    def image_bytes(self) -> int:
        """What allocate holds for an image."""
        like, row = self.network.fc.weight, self.target.guidance * self.network.fc.out_features
        return row * (2 * self._slots * cache_dtype(like).itemsize + self.most * like.itemsize)

    @property
    def _slots(self) -> int:
        return self.target.prefix_len + self.target.num_tokens + self.most + self.ahead

    def allocate(self, batch_size: int) -> None:
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        slots, dim = self._slots, self.network.fc.out_features
        kept = like.new_empty(0, dtype=cache_dtype(like))
        self.cache = KVCache(1, batch_size, target.guidance, slots, heads, dim // heads, kept)
        self.pairs = Pairs(batch_size, self.most, target.guidance, like, dim)
        for tree in self._trees:
            tree.allocate(batch_size, target.grid, like.device)

    def begin(self, prefill: Forward, rows: Tensor, read: Callable[..., object]) -> int:
        """Admitted rows: their prefix pairs are read, and the last prefix feature waits for the first image token.
        read: as FusedEagle's call. -> the forwards that took."""
        prefix = prefill.features.shape[2] - 1
        admission = PrefillView(self.cache, rows, prefix)
        if prefix:
            text = rows.new_zeros(len(rows), prefix)  # text rows carry code 0
            causal = torch.ones(1, prefix, prefix, dtype=torch.bool, device=rows.device).tril()
            mask = additive(causal, self.cache.store.dtype).expand(len(rows) * self.target.guidance, -1, -1, -1)
            read(text, prefill.features[:, :, :-1], self.target.rotary[None, 1 : prefix + 1], mask, admission)
        self.pairs.start(rows, prefill.features[:, :, -1])
        for tree in self._trees:
            tree.begin(rows)
        return int(prefix > 0)

    def reserve(self, ahead: int) -> tuple[Tensor, Tensor]:
        """Makes room for the A closed pairs, the root's the last of its image's, and `ahead` rows that stand behind the
        root one after the other -> their rotary and mask. A row sees those before it, its image's."""
        longest, lengths = max(self.pairs.counts), self.cache.lengths[:, None]
        offsets = torch.arange(longest + ahead, device=lengths.device)
        cells, sees = offsets, offsets <= offsets[:, None]
        if min(self.pairs.counts) < longest:  # nobody but themselves sees the places behind an image's last pair
            is_pair, last = offsets < longest, self.pairs.count[:, None] - 1
            cells = torch.where(is_pair, torch.minimum(offsets, last), last + offsets - (longest - 1))
            sees = sees & ((~is_pair | (offsets <= last))[:, None] | (offsets == offsets[:, None]))
        rotary = self.target.rotary[(lengths + 1 + cells).clamp(max=len(self.target.rotary) - 1)]
        self.cache.reserve(len(offsets))
        mask = self.cache.mask(sees.expand(len(lengths), -1, -1))
        return rotary if len(rotary) == 1 else rotary.repeat_interleave(self.target.guidance, 0), mask

    def from_root(self, outputs: Tensor) -> Tensor:
        """outputs [B, R, A + ahead, D] of placed rows -> the root's and those behind it [B, R, 1 + ahead, D]."""
        longest = max(self.pairs.counts)
        if min(self.pairs.counts) == longest:  # they stand side by side
            return outputs[:, :, longest - 1 :]
        root = outputs[self.pairs.rows, :, self.pairs.count - 1].unsqueeze(2)
        return torch.cat([root, outputs[:, :, longest:]], dim=2)

    def observe(self, tree: DraftTree, forward: Forward, verdict: Verdict) -> None:
        self.pairs.observe(tree, forward, verdict)
        for policy in self._trees:
            policy.observe(verdict)

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)
        self.pairs.keep(rows)
        for tree in self._trees:
            tree.keep(rows)
