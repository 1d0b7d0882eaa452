"""Initial laws of a Jacobi window's positions that no pass has read yet: the initialisations of SJD (2410.01699), which
repeat a token or draw any, and ours, the law of the nearest position that has been read."""

import torch
from torch import Tensor

from lantern.drafters.jacobi.window import guessed
from lantern.errors import check_whole


class Nearest:
    """The law of the last position that a pass has read: image laws change slowly along a row."""

    def __call__(self, laws: Tensor, seen: Tensor, image: Tensor, position: Tensor) -> Tensor:
        return laws


class Uniform:
    """The uniform law over all codes."""

    def __call__(self, laws: Tensor, seen: Tensor, image: Tensor, position: Tensor) -> Tensor:
        return torch.where(_unseen(laws, seen)[..., None], 1 / laws.shape[-1], laws)


class Left:
    """The last guessed token, repeated."""

    def __call__(self, laws: Tensor, seen: Tensor, image: Tensor, position: Tensor) -> Tensor:
        last = image.gather(1, (position + guessed(seen))[:, None])
        return _point_mass(last.expand(laws.shape[:2]), laws, seen)


class Above:
    """The token one image row above, committed or guessed; in the first row, as Left."""

    def __init__(self, width: int) -> None:
        check_whole("drafter.start", width=width)
        self.width = width  # of the token grid

    def __call__(self, laws: Tensor, seen: Tensor, image: Tensor, position: Tensor) -> Tensor:
        ahead = position[:, None] + 1 + torch.arange(laws.shape[1], device=seen.device)
        newest = (position + guessed(seen))[:, None]
        last, above = image.gather(1, newest), image.gather(1, torch.minimum(ahead - self.width, newest).clamp(min=0))
        return _point_mass(torch.where(ahead < self.width, last, above), laws, seen)


def _unseen(laws: Tensor, seen: Tensor) -> Tensor:  # [B, W]
    return torch.arange(laws.shape[1], device=seen.device) >= seen[:, None]


def _point_mass(tokens: Tensor, laws: Tensor, seen: Tensor) -> Tensor:
    law = torch.zeros_like(laws).scatter_(2, tokens[..., None], 1.0)
    return torch.where(_unseen(laws, seen)[..., None], law, laws)
