"""What a drafter of pairs needs from its target, and the cache slots of a pass over a round's pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.engine.cache import ReusableCache, TreeView
from lantern.types import Target


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

    def rerun_window(self, rotary: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, TreeView]:
        """Prepares another pass over only the tokens behind the root, which overwrites their slots -> their part of
        rotary and mask, both from rotary_and_mask(), and the view of their slots."""
        self.view.reserve(self.ahead, self.longest)
        return rotary[:, self.longest :], mask[:, :, self.longest :], self.view

    def from_root(self, outputs: Tensor) -> Tensor:
        """outputs [B, R, A + ahead, D] of the slots -> the root's and those behind it [B, R, 1 + ahead, D]."""
        if self.count is None:  # contiguous
            return outputs[:, :, self.longest - 1 :]
        rows = torch.arange(len(outputs), device=outputs.device)
        root = outputs[rows, :, self.count - 1].unsqueeze(2)
        return torch.cat([root, outputs[:, :, self.longest :]], dim=2)
