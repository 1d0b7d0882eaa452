"""EAGLE drafting (2401.15077, section 4.1): a feature-level drafter expands a tree level by level; any tree, guided as
LANTERN (2410.03355) guides it. Committed tokens are run once, with the target's features, and stay in its cache."""

from time import perf_counter

import torch
from torch import Tensor

from lantern.drafters.eagle.kv_state import DrafterMemory, require_codes
from lantern.drafters.eagle.network import EagleNetwork, FusedEagle
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Proposals, Target, TreePolicy, Verdict


class Eagle:
    """Implements lantern.types.Drafter; the tree policy decides what is expanded."""

    name = "eagle"

    def __init__(
        self, network: EagleNetwork, target: Target, tree: TreePolicy, sampling: Sampling, weights_hash: str = ""
    ) -> None:
        require_codes(tree, target)
        self.network, self.target, self.tree = network.eval().requires_grad_(False), target, tree
        self._layer = FusedEagle(self.network, target.embed_weight)
        self.sampling, self.weights_hash = sampling, weights_hash
        self.num_nodes, self.depth = tree.num_nodes, tree.depth
        self.forwards, self.forward_s = 0, 0.0
        self.memory = DrafterMemory(self.network, target, tree, most=self.depth + 1, ahead=tree.num_expanded)

    @property
    def image_bytes(self) -> int:
        return self.memory.image_bytes

    def allocate(self, batch_size: int) -> None:
        """An empty cache and no pending pairs for batch_size rows."""
        self.memory.allocate(batch_size)
        self.cache, self.pairs = self.memory.cache, self.memory.pairs

    @torch.inference_mode()
    def begin(self, prefill: Forward, rows: Tensor) -> None:
        self.forwards += self.memory.begin(prefill, rows, self._layer)

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
        outputs = self._run(tokens, features, *self.memory.reserve(ahead=0))
        self.cache.extend(self.pairs.counts, self.pairs.count)
        self._sees = None
        self._outputs = self.memory.from_root(outputs)  # [B, R, E, D], the root's first
        return self._outputs

    def _extend(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        """One level: tokens [B, W] paired with their parents' outputs, seeing their ancestors. -> [B, R, W, D]."""
        if self._sees is None:
            self._sees = self.cache.committed(self.tree.num_expanded)  # [B, E, S] of each expansion, the root's first
        width, placed = tokens.shape[1], self._sees.shape[1] - 1
        index = parents[:, None, :, None].expand(-1, self._outputs.shape[1], -1, self._outputs.shape[3])
        features = self._outputs.gather(2, index)
        self.cache.reserve(width, offset=placed)
        cells = (self.cache.lengths + depth).clamp(max=len(self.target.rotary) - 1)[:, None].expand(-1, width)
        rotary = self.target.rotary[cells].repeat_interleave(self.target.guidance, 0)
        outputs = self._run(tokens, features, rotary, self._mask(parents, placed))
        self._outputs = torch.cat([self._outputs, outputs], dim=2)
        return outputs

    def _mask(self, parents: Tensor, placed: int) -> Tensor:
        """[B R, 1, W, extent]: an expansion sees what its parent sees, and itself, `placed` slots behind the root."""
        sees = self._sees.gather(1, parents[..., None].expand(-1, -1, self._sees.shape[2]))
        own = self.cache.lengths[:, None] + placed + torch.arange(parents.shape[1], device=parents.device)
        sees.scatter_(2, own[..., None], 0.0)
        self._sees = torch.cat([self._sees, sees], dim=1)
        return sees[:, None, :, : self.cache.extent].repeat_interleave(self.target.guidance, 0)

    def _run(self, tokens: Tensor, features: Tensor, rotary: Tensor, mask: Tensor) -> Tensor:
        """See FusedEagle."""
        self.forwards += 1
        return self._layer(tokens, features, rotary, mask, self.cache)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the pairs (feature of an accepted node, the token behind it) for the next draft."""
        self.memory.observe(tree, forward, verdict)

    def keep(self, rows: Tensor) -> None:
        self.memory.keep(rows)
