"""The pairs (feature of an accepted node, token behind it) that a round commits and a drafter has yet to read."""

from collections.abc import Callable

import torch
from torch import Tensor

from lantern.models.token_grid import expand_index_like
from lantern.types import DraftTree, Verdict


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
        longest = max(verdict.counts) + 1
        path = verdict.path[:, :longest].clamp(min=0)
        self.tokens[:, : longest - 1] = tree.tokens.gather(1, expand_index_like(path, tree.tokens))[:, 1:]
        own = features.transpose(1, 2)[self.rows[:, None], path].transpose(1, 2)
        self.features[:, :, :longest] = read(own) if read else own
        self.count, self.counts = verdict.num_committed, [accepted + 1 for accepted in verdict.counts]

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        self.tokens, self.features, self.count = self.tokens[rows], self.features[rows], self.count[rows]
        self.counts, self.rows = [self.counts[row] for row in rows.tolist()], self.rows[: len(rows)]
