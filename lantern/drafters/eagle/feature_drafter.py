"""What the drafters that run EAGLE's network over pairs share. A pair is the feature of an accepted node and the token
behind it; a round commits some, and the next draft reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.drafters.eagle.network import EagleNetwork, FusedEagle
from lantern.engine.cache import DRAFTER_PASS, PrefillView, ReusableCache, TreeView, additive
from lantern.engine.graphs import Outputs, Run
from lantern.errors import LanternError
from lantern.models.llamagen.fused import cache_dtype
from lantern.models.token_grid import expand_index_like
from lantern.sampling import Sampling
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


class Pairs:
    """Row b holds count[b] pairs: tokens [B, A, ...], features [B, R, A, D]. The last one's token is the next root."""

    def __init__(self, tokens: Tensor, guidance: int, like: Tensor, dim: int) -> None:
        """tokens: empty ones, as many as a round can commit."""
        self.tokens = tokens
        batch_size, max_pairs = tokens.shape[:2]
        self.features = like.new_zeros(batch_size, guidance, max_pairs, dim)
        self.count = torch.ones(batch_size, dtype=torch.long, device=like.device)
        self.counts = [1] * batch_size  # the same, on the host
        self.rows = torch.arange(batch_size, device=like.device)

    def start(self, rows: Tensor, features: Tensor) -> None:
        """Starts admitted rows: features [B, R, D] read at the prefix's last position are half of their first pairs."""
        self.features[rows, :, 0] = features.to(self.features.dtype)
        self.count[rows] = 1
        for row in rows.tolist():
            self.counts[row] = 1

    def close(self, roots: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """The roots [B, ...] complete the last pairs -> tokens [B, A, ...], features [B, R, A, D], A = longest."""
        self.tokens[self.rows, self.count - 1] = roots
        return self.tokens[:, :longest], self.features[:, :, :longest]

    def observe(
        self, tree: DraftTree, features: Tensor, verdict: Verdict, read: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Turns the accepted path into pairs; the verdict's token will complete the last. features [B, R, N, F] of the
        nodes; read, if given, maps the path's features to what the drafter reads [..., D]."""
        longest = max(verdict.counts)
        path = verdict.path[:, :longest].clamp(min=0)
        self.tokens[:, : longest - 1] = tree.tokens.gather(1, expand_index_like(path, tree.tokens))[:, 1:]
        own = features.transpose(1, 2)[self.rows[:, None], path].transpose(1, 2)
        self.features[:, :, :longest] = read(own) if read else own
        self.count, self.counts = verdict.num_committed, [*verdict.counts]

    def keep(self, rows: Tensor) -> None:
        self.tokens, self.features, self.count = self.tokens[rows], self.features[rows], self.count[rows]
        self.counts, self.rows = [self.counts[row] for row in rows.tolist()], self.rows[: len(rows)]


@dataclass(frozen=True)
class PairPass:
    """Slots for the A closed pairs, the root's last, and for a chain of `ahead` tokens behind the root."""

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

    def from_root(self, outputs: Tensor) -> Tensor:
        """outputs [B, R, A + ahead, D] of the slots -> the root's and those behind it [B, R, 1 + ahead, D]."""
        if self.count is None:  # contiguous
            return outputs[:, :, self.longest - 1 :]
        rows = torch.arange(len(outputs), device=outputs.device)
        root = outputs[rows, :, self.count - 1].unsqueeze(2)
        return torch.cat([root, outputs[:, :, self.longest :]], dim=2)


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

    def allocate(self, batch_size: int) -> None:
        """An empty cache and no pending pairs for batch_size rows."""
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        if isinstance(target, LayeredTarget):
            target.hand_out(self.network.reads.layers)
        slots, dim = target.prefix_len + target.num_tokens + self._max_pairs + self._ahead, self.network.fc.out_features
        shape = self.network.num_layers, batch_size, target.guidance, slots, heads, dim // heads
        self.cache = target.drafter_caches.allocate(*shape, like.new_empty(0, dtype=cache_dtype(like)))
        self.pairs = Pairs(target.empty_tokens(batch_size, self._max_pairs), target.guidance, like, dim)

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

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)
        self.pairs.keep(rows)


def layered(target: Target) -> LayeredTarget:
    """The target as a LayeredTarget; LanternError if it does not hand out the inputs of its layers."""
    if not isinstance(target, LayeredTarget):
        kind = type(target).__name__
        raise LanternError(f"{kind} hands out no inputs of its layers, as recipe=eagle3 needs; use another recipe")
    return target


def require_layers(target: Target, layers: Sequence[int]) -> None:
    if layers and max(layers) >= (count := layered(target).num_layers):
        raise LanternError(f"this drafter reads layers {[*layers]}, this target has {count}; use one made for it")
