"""Checks of image sides and token grids, for image tokenizers."""

from math import isqrt

from torch import Tensor

from lantern.errors import LanternError


def check_sides(images: Tensor, multiple: int) -> None:  # [B, 3, H, W]
    """Raises LanternError unless both sides are multiples of `multiple`, the encoder's downsampling."""
    if images.shape[-1] % multiple or images.shape[-2] % multiple:
        sides = tuple(images.shape[-2:])
        raise LanternError(f"image sides {sides} must be multiples of {multiple}; resize or crop the images")


def square(tokens: Tensor) -> Tensor:  # [B, L] -> [B, h, w]
    """Tokens in raster order as a square grid. Raises LanternError if L is no square number."""
    side = isqrt(tokens.shape[1])
    if side * side != tokens.shape[1]:
        raise LanternError(f"{tokens.shape[1]} tokens do not fill a square grid; pass side * side tokens an image")
    return tokens.unflatten(1, (side, side))
