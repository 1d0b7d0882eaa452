"""Initial laws of a Jacobi window's positions that no pass has read yet. Two are SJD's (2410.01699): draw any token,
repeat the token before. Ours is the law of the nearest position that was read."""

import torch
from torch import Tensor

from lantern.drafters.jacobi.window import Unread


class Nearest:
    """The law of the last position that a pass has read: image laws change slowly along a row."""

    def __call__(self, unread: Unread) -> Tensor:
        return unread.laws


class Uniform:
    """The uniform law over all codes."""

    def __call__(self, unread: Unread) -> Tensor:
        return torch.where(unread.unseen[..., None], 1 / unread.laws.shape[-1], unread.laws)


class Left:
    """The last guessed token, repeated."""

    def __call__(self, unread: Unread) -> Tensor:
        certain = torch.zeros_like(unread.laws[:, :1]).scatter_(2, unread.last[:, None, None], 1.0)  # [B, 1, V]
        return torch.where(unread.unseen[..., None], certain, unread.laws)
