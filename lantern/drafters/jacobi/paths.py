"""PathSpec's draft (2606.10492): several Jacobi windows side by side, each a path of the tree with guesses of its own.
Ours, unlike its code: the paths part at the root, whose children are distinct draws from one law, so that ratio can
judge the tree, too; positions that no pass has read start from the nearest law, not from random codes; and no path
takes over another's tokens."""

import torch
from torch import Tensor

from lantern.drafters.jacobi.window import KIND, RedrawingProposals
from lantern.errors import LanternError, check_whole
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, Forward, Proposals, Target, TreeLabel, TreeTopology, Verdict


class JacobiPaths:
    """Implements lantern.types.Drafter, for verifications that toss coins. State per batch row: the last pass's laws of
    each path's positions behind the root [B, K, W, V], the committed path first."""

    weights_hash = None
    forwards, forward_s = 0, 0.0

    def __init__(self, target: Target, length: int, paths: int, sampling: Sampling, name: str = "jacobi_paths") -> None:
        """length: of each path, in tokens; paths: how many."""
        check_whole("drafter", 2, length=length, paths=paths)
        check_nodes(length * paths, f"drafter.length={length}, paths={paths}")
        self._target, self._sampling, self.length, self.paths = target, sampling, length, paths
        starts = range(1, paths * length + 1, length)
        self._parents = (-1, *(0 if node in starts else node - 1 for node in range(1, paths * length + 1)))
        self.name, self.tree = name, TreeLabel(f"window_{length}x{paths}", KIND)
        self.num_nodes, self.depth = len(self._parents), length

    def allocate(self, batch_size: int) -> None:
        target = self._target
        self._laws = target.codebook.float().new_zeros(batch_size, self.paths, self.length, target.vocab_size)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        law = self._sampling.law(prefill.logits)  # [M, 1, V]
        self._laws = self._laws.to(law.dtype)
        self._laws[rows] = law[:, None]

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        if not isinstance(proposals, RedrawingProposals):
            raise LanternError(f"drafter={self.name} draws several paths, shared noise allows one; use ratio")
        first, laws = self._laws[:, 0, :1], self._laws
        best = proposals.sample_scores(first.log(), torch.zeros_like(roots[:1]), 0)[:, 0].topk(self.paths)
        behind = proposals.redraw(laws[:, :, 1:].flatten(1, 2)).view(len(roots), self.paths, -1)
        tokens = torch.cat([roots[:, None], torch.cat([best.indices[..., None], behind], 2).flatten(1)], 1)
        parents = TreeTopology.of(self._parents, roots.device).cut_to(tokens_left)
        is_lost = (best.values == -torch.inf).repeat_interleave(self.length, 1)  # outside q's support; see StaticTree
        parents[:, 1:].masked_fill_(is_lost, PADDING)
        below = laws.roll(-1, 2).flatten(1, 2)  # of a leaf, which has no children, any law
        return DraftTree(tokens, parents, torch.cat([first, below], 1), width=self.paths)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """From probs [B, N, V], keeps each path's laws of the positions behind the verdict's token; positions without a
        law repeat the path's last one."""
        rows, device = torch.arange(len(probs), device=probs.device)[:, None], probs.device
        leaf = verdict.path.gather(1, verdict.accepted[:, None])
        committed = (leaf - 1).clamp(min=0) // self.length  # [B, 1]
        order = (committed + torch.arange(self.paths, device=device)) % self.paths
        depths = (verdict.accepted[:, None] + 1 + torch.arange(self.length, device=device)).clamp(max=self.length)
        nodes = order[..., None] * self.length + depths[:, None]  # [B, K, W]
        self._laws = probs[rows[..., None], nodes]

    def keep(self, rows: Tensor) -> None:
        self._laws = self._laws[rows]
