"""Plain autoregressive decoding, no paper's: a tree of the root alone, through the same loop and the same timers."""

import torch
from torch import Tensor

from lantern.types import DraftTree, Forward, Verdict


class NoDrafter:
    name = "none"
    num_nodes = 1
    depth = 0
    forwards = 0

    def allocate(self, batch_size: int) -> None:
        pass

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        pass

    def draft(self, roots: Tensor, room: Tensor, proposals) -> DraftTree:
        return DraftTree(roots[:, None], torch.full_like(roots, -1)[:, None])

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        pass

    def keep(self, rows: Tensor) -> None:
        pass
