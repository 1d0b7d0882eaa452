"""What a drafter that reads pairs keeps of each image: keys and values of the pairs it has read, those it has yet to
read, and what its tree learns from rounds."""

from torch import Tensor

from lantern.drafters.eagle_network import EagleNetwork
from lantern.drafters.pairs import Pairs
from lantern.drafters.parallel_network import ParallelNetwork
from lantern.models.cache import KVCache
from lantern.models.llamagen.fused import cache_dtype
from lantern.types import DraftTree, Forward, Remembers, Target, TreePolicy, Verdict


class DrafterMemory:
    """`cache` and `pairs` are there once it is allocated."""

    def __init__(self, network: EagleNetwork | ParallelNetwork, target: Target, tree: TreePolicy) -> None:
        self.network, self.target = network, target
        self._trees = [tree] if isinstance(tree, Remembers) else []

    def allocate(self, batch_size: int, most: int, ahead: int) -> None:
        """most: pairs that a round can commit; ahead: rows that a draft runs behind them."""
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        slots, dim = target.prefix_len + target.num_tokens + most + ahead, self.network.fc.out_features
        kept = like.new_empty(0, dtype=cache_dtype(like))
        self.cache = KVCache(1, batch_size, target.guidance, slots, heads, dim // heads, kept)
        self.pairs = Pairs(batch_size, most, target.guidance, like, dim)
        for tree in self._trees:
            tree.allocate(batch_size, target.grid, like.device)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """Admitted rows, whose prefix pairs are run: the last prefix feature waits for the first image token."""
        self.pairs.start(rows, prefill.features[:, :, -1])
        for tree in self._trees:
            tree.begin(rows)

    def observe(self, tree: DraftTree, forward: Forward, verdict: Verdict) -> None:
        self.pairs.observe(tree, forward, verdict)
        for policy in self._trees:
            policy.observe(verdict)

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)
        self.pairs.keep(rows)
        for tree in self._trees:
            tree.keep(rows)
