"""A Jacobi window of continuous tokens (ours): a chain of the target's own tokens in its last pass, each under
the noise of its position. Under shared noise it converges to plain decoding's image (SCD, 2510.24211, for codes)."""

import torch
from torch import Tensor

from lantern.continuous.latent_sampling import LatentProposals, TokenHead
from lantern.drafters.jacobi.jacobi import cut_chain
from lantern.drafters.jacobi.window import KIND
from lantern.errors import check_whole
from lantern.models.token_grid import expand_index_like
from lantern.runtime.memory import check_nodes
from lantern.types import DraftTree, Forward, Target, TreeLabel, Verdict


class LatentJacobi:
    """Implements lantern.types.Drafter; no network, no drafter forwards, no use of the diffusion head. A position that
    no pass has read repeats the last token known, with its own noise of the last denoising step."""

    name, weights_hash = "latent_jacobi", None
    forwards, forward_s = 0, 0.0

    def __init__(self, target: Target, length: int) -> None:
        """length: of the window, in tokens."""
        check_whole("drafter", 1, length=length)
        check_nodes(length, f"drafter.length={length}")
        head = TokenHead(target)
        self.sigma, self._target = head.sigma, head.target
        self._width = target.guidance * target.embed_weight.shape[-1]  # numbers of a condition
        self.tree = TreeLabel(f"window_{length}", KIND)
        self.num_nodes, self.depth = length + 1, length

    def allocate(self, batch_size: int) -> None:
        self._guesses = self._target.empty_tokens(batch_size, self.depth)
        self._laws = self._guesses.new_zeros(batch_size, self.depth, self._width)
        self._seen = torch.zeros(batch_size, dtype=torch.long, device=self._guesses.device)
        self._order = torch.arange(self.depth, device=self._guesses.device)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        self._seen[rows] = 0

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: LatentProposals) -> DraftTree:
        """draft_probs: the conditions that the drafts were drawn from, nan where they repeat a token."""
        rows, is_seen = torch.arange(len(roots), device=roots.device), (self._order < self._seen[:, None])[..., None]
        newest = self._guesses[rows, (self._seen - 1).clamp(min=0)]
        newest = torch.where((self._seen > 0)[:, None], newest, roots)[:, None]
        own = proposals.normals(self.depth + 1)[:, : self.depth, -1].to(roots.dtype)
        tokens = torch.where(is_seen, self._guesses, newest + self.sigma * own)
        laws = torch.where(is_seen, self._laws, torch.nan)
        tokens, laws = torch.cat([roots[:, None], tokens], 1), torch.cat([laws, laws[:, -1:]], 1)
        return cut_chain(tokens_left, tokens, laws)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the target's tokens at the positions behind the verdict's, and the conditions they were drawn from."""
        assert verdict.picks is not None  # of every verification of latents
        behind = (verdict.accepted[:, None] + 1 + self._order).clamp(max=self.depth)
        self._guesses = verdict.picks.gather(1, expand_index_like(behind, verdict.picks))
        self._laws = probs.gather(1, expand_index_like(behind, probs))
        self._seen = self.depth - verdict.accepted

    def keep(self, rows: Tensor) -> None:
        self._guesses, self._laws, self._seen = self._guesses[rows], self._laws[rows], self._seen[rows]
