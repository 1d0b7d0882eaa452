"""EAGLE drafting (2401.15077, section 4.1): a feature-level drafter expands a tree level by level; any tree, guided as
LANTERN (2410.03355) guides it. Committed tokens are run once, with the target's features, and stay in its cache."""

import torch
from einops import rearrange
from torch import Tensor

from lantern.drafters.eagle_network import EagleNetwork, FusedEagle
from lantern.errors import LanternError
from lantern.models.cache import Admission, KVCache, additive
from lantern.models.llamagen.fused import Memory, cache_dtype
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Remembers, Target, TreePolicy, Verdict


class Eagle:
    """Implements lantern.types.Drafter; the tree policy decides what is expanded."""

    name = "eagle"

    def __init__(
        self, network: EagleNetwork, target: Target, tree: TreePolicy, sampling: Sampling, weights_hash: str = ""
    ) -> None:
        if tree.width > target.vocab_size:
            raise LanternError(
                f"a node of tree {tree.name} has {tree.width} children, more than the {target.vocab_size} codes"
            )
        self.network, self.target, self.tree = network.eval().requires_grad_(False), target, tree
        self._layer = FusedEagle(self.network, target.embed_weight)
        self.sampling, self.weights_hash = sampling, weights_hash
        self.num_nodes, self.depth = tree.num_nodes, tree.depth
        self.forwards = 0
        self._remembering = [tree] if isinstance(tree, Remembers) else []

    def allocate(self, batch_size: int, longest: int | None = None) -> None:
        """An empty cache and no pending pairs for batch_size rows, which commit at most `longest` tokens a round, the
        tree's own path and the token behind it if nothing is said."""
        target, heads, like = self.target, self.network.attention.num_heads, self.network.fc.weight
        self._longest = longest or self.depth + 1
        slots = target.prefix_len + target.num_tokens + self._longest + self.tree.num_expanded
        dim = self.network.fc.out_features
        kept = like.new_empty(0, dtype=cache_dtype(like))
        self.cache = KVCache(1, batch_size, target.guidance, slots, heads, dim // heads, kept)
        self._tokens = torch.zeros(batch_size, self._longest, dtype=torch.long, device=like.device)
        self._features = like.new_zeros(batch_size, target.guidance, self._longest, dim)
        self._pending, self._counts = torch.ones_like(self._tokens[:, 0]), [1] * batch_size
        for tree in self._remembering:
            tree.allocate(batch_size, target.grid, like.device)

    @torch.inference_mode()
    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """Runs the prefix pairs of admitted rows; the last prefix feature waits for the first image token."""
        prefix = prefill.features.shape[2] - 1
        admission = Admission(self.cache, rows, prefix)
        if prefix:
            text = torch.zeros(len(rows), prefix, dtype=torch.long, device=rows.device)  # text rows carry code 0
            causal = torch.ones(1, prefix, prefix, dtype=torch.bool, device=rows.device).tril()
            mask = additive(causal, self.cache.store.dtype).expand(len(rows) * self.target.guidance, -1, -1, -1)
            cells = torch.arange(1, prefix + 1, device=rows.device).expand(len(rows), -1)
            self._run(text, prefill.features[:, :, :-1], cells, mask, admission)
        self._features[rows, :, 0] = prefill.features[:, :, -1].to(self._features.dtype)
        self._pending[rows] = 1
        for row in rows.tolist():
            self._counts[row] = 1
        for tree in self._remembering:
            tree.begin(rows)

    @torch.inference_mode()
    def draft(self, roots: Tensor, room: Tensor, proposals) -> DraftTree:
        """roots [B], room [B] -> DraftTree; the root's pair is committed to the cache here."""
        self._images = torch.arange(len(roots), device=roots.device)
        self._outputs = None
        self._roots = roots
        return self.tree.grow(roots, room, self._expand, proposals)

    def _expand(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        """tokens [B, W] behind the expansions parents [B, W] -> log q [B, W, V] up to a constant."""
        outputs = self._commit_pending() if depth == 0 else self._extend(tokens, parents, depth)
        return self.sampling.scores(self.target.head(self.target.guide(outputs)))

    def _commit_pending(self) -> Tensor:
        """Runs the pairs committed since the last draft, the root's last. Returns the root's output [B, R, 1, D]."""
        count = max(self._counts)
        self._tokens[self._images, self._pending - 1] = self._roots
        offsets = torch.arange(count, device=self._roots.device)
        cells = self.cache.lengths[:, None] + 1 + torch.minimum(offsets, self._pending[:, None] - 1)
        causal = (offsets <= offsets[:, None]).expand(len(self._roots), -1, -1)
        self.cache.place(count)
        mask = self.cache.mask(causal)
        outputs = self._run(self._tokens[:, :count], self._features[:, :, :count], cells, mask, self.cache)
        self.cache.extend(self._counts, self._pending)
        self._sees = self.cache.committed(self.tree.num_expanded)  # [B, E, S] of each expansion, the root's first
        self._outputs = outputs[self._images, :, self._pending - 1].unsqueeze(2)  # [B, R, E, D], the root's first
        return self._outputs

    def _extend(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        """One level: tokens [B, W] paired with their parents' outputs, seeing their ancestors. -> [B, R, W, D]."""
        width, placed = tokens.shape[1], self._sees.shape[1] - 1
        index = parents[:, None, :, None].expand(-1, self._outputs.shape[1], -1, self._outputs.shape[3])
        features = self._outputs.gather(2, index)
        self.cache.place(width, offset=placed)
        cells = (self.cache.lengths + depth).clamp(max=len(self.target.turns) - 1)[:, None].expand(-1, width)
        outputs = self._run(tokens, features, cells, self._mask(parents, placed), self.cache)
        self._outputs = torch.cat([self._outputs, outputs], dim=2)
        return outputs

    def _mask(self, parents: Tensor, placed: int) -> Tensor:
        """[B R, 1, W, extent]: an expansion sees what its parent sees, and itself, `placed` slots behind the root."""
        sees = self._sees.gather(1, parents[..., None].expand(-1, -1, self._sees.shape[2]))
        own = self.cache.lengths[:, None] + placed + torch.arange(parents.shape[1], device=parents.device)
        sees.scatter_(2, own[..., None], 0.0)
        self._sees = torch.cat([self._sees, sees], dim=1)
        return sees[:, None, :, : self.cache.extent].repeat_interleave(self.target.guidance, 0)

    def _run(self, tokens: Tensor, features: Tensor, cells: Tensor, mask: Tensor, memory: Memory) -> Tensor:
        """tokens, cells [B, T], features [B, R, T, D], mask [B R, 1, T, S] -> outputs [B, R, T, D]."""
        guidance = features.shape[1]
        self.forwards += 1
        turns = self.target.turns[cells].repeat_interleave(guidance, 0)
        stacked = rearrange(features, "b r t d -> (b r) t d")
        outputs = self._layer(tokens.repeat_interleave(guidance, 0), stacked, turns, mask, memory)
        return rearrange(outputs, "(b r) t d -> b r t d", r=guidance)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the pairs (feature of an accepted node, the token behind it) for the next draft."""
        count = max(verdict.counts) + 1
        path = verdict.path[:, :count].clamp(min=0)
        rows = torch.arange(len(path), device=path.device)
        self._tokens[:, : count - 1] = tree.tokens.gather(1, path)[:, 1:]
        features = forward.features.transpose(1, 2)[rows[:, None], path]  # [B, A, R, D]
        self._features[:, :, :count] = features.transpose(1, 2)
        self._pending, self._counts = verdict.accepted + 1, [accepted + 1 for accepted in verdict.counts]
        for policy in self._remembering:
            policy.observe(verdict)

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)
        self._tokens, self._features, self._pending = self._tokens[rows], self._features[rows], self._pending[rows]
        self._counts = [self._counts[row] for row in rows.tolist()]
        for tree in self._remembering:
            tree.keep(rows)
