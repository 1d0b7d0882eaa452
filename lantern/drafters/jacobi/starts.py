"""Initial laws of a Jacobi window's positions that no pass has read yet: two initialisations of SJD (2410.01699), which
repeat a token or draw any, and ours, the law of the nearest position that has been read."""

import torch
from torch import Tensor


class Nearest:
    """The law of the last position that a pass has read: image laws change slowly along a row."""

    def __call__(self, laws: Tensor, seen: Tensor, last: Tensor) -> Tensor:
        return laws


class Uniform:
    """The uniform law over all codes."""

    def __call__(self, laws: Tensor, seen: Tensor, last: Tensor) -> Tensor:
        return torch.where(_unseen(laws, seen), 1 / laws.shape[-1], laws)


class Left:
    """The last guessed token, repeated."""

    def __call__(self, laws: Tensor, seen: Tensor, last: Tensor) -> Tensor:
        certain = torch.zeros_like(laws[:, :1]).scatter_(2, last[:, None, None], 1.0)  # [B, 1, V]
        return torch.where(_unseen(laws, seen), certain, laws)


def _unseen(laws: Tensor, seen: Tensor) -> Tensor:  # [B, W, 1]
    return (torch.arange(laws.shape[1], device=seen.device) >= seen[:, None])[..., None]
