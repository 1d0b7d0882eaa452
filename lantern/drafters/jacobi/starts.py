"""Initial laws of a Jacobi window's positions that no pass has read yet. Three are SJD's (2410.01699): draw any token,
repeat the token before, repeat the token above. Two are ours: the law of the nearest position that was read, and the
token of a preview grid."""

import torch
from torch import Tensor

from lantern.drafters.jacobi.window import Unread
from lantern.errors import LanternError


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


class Above:
    """The token above, where the image has one already, else as Nearest."""

    reads_image = True

    def __call__(self, unread: Unread) -> Tensor:
        return unread.repeating(unread.places - unread.target.grid[1])


class Preview:
    """The token of the preview grid at the same place of the image, for a target that draws a preview first; in the
    preview itself as Nearest."""

    reads_image = True

    def __call__(self, unread: Unread) -> Tensor:
        preview, grid = (getattr(unread.target, name, None) for name in ("preview", "image_grid"))
        if preview is None or grid is None:
            raise LanternError("drafter.start=Preview is for targets that draw a preview first; leave it out")
        rows, columns = grid
        place = unread.places - preview[0] * preview[1]  # in the image's own grid
        row, column = (place // columns).clamp(0, rows - 1), place % columns
        there = row * preview[0] // rows * preview[1] + column * preview[1] // columns
        return unread.repeating(torch.where(place >= 0, there, -1))
