"""Tensors of tokens along one axis, whatever trails it (nothing for codes, C channels for latents), and as a grid."""

from collections.abc import Sequence
from math import isqrt

import torch
from torch import Tensor

from lantern.errors import CheckpointError, LanternError
from lantern.types import Target


def has_latents(target: Target) -> bool:
    """Whether its tokens are latents, and not codes."""
    return target.empty_tokens(0).is_floating_point()


def expand_index_like(index: Tensor, like: Tensor) -> Tensor:
    """index [B, M] into positions, as gather and scatter need it for tokens or laws like [B, N, ...]."""
    trailing = like.shape[2:]
    return index.view(*index.shape, *[1] * len(trailing)).expand(*index.shape, *trailing) if trailing else index


def check_sides(images: Tensor, multiple: int) -> None:  # [B, 3, H, W]
    if images.shape[-1] % multiple or images.shape[-2] % multiple:
        sides = tuple(images.shape[-2:])
        raise LanternError(f"image sides {sides} must be multiples of {multiple}; resize or crop the images")


def grid_of(image_size: int | Sequence[int], multiple: int) -> tuple[int, int]:
    """image_size: the side of a square, or height and width -> rows and columns of codes of `multiple` pixels."""
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    for side in (height, width):
        if side < 1 or side % multiple:
            nearest = max(1, round(side / multiple)) * multiple
            raise CheckpointError(
                f"model.image_size={side} is no multiple of {multiple}; give model.image_size={nearest}, or "
                "another multiple that the checkpoint was made for"
            )
    return height // multiple, width // multiple


def square(tokens: Tensor) -> Tensor:  # [B, L] -> [B, h, w]
    """Tokens in raster order as a square grid."""
    side = isqrt(tokens.shape[1])
    return tokens.unflatten(1, (side, side))


def token_layout(grid: tuple[int, int], preview: tuple[int, int] | None) -> tuple[int, int]:
    """Rows and columns of both grids' tokens: the image's columns if the preview fills rows of them, else one row."""
    (rows, columns), before = grid, preview[0] * preview[1] if preview else 0
    return (rows + before // columns, columns) if before % columns == 0 else (1, before + rows * columns)


def grid_positions(*grids: tuple[int, int]) -> Tensor:
    """[L, 3] rotary positions of consecutive grids: start, start + row, start + column. The next grid's start is the
    grid's longer side further on (as Qwen2-VL, 2409.12191, places images, and GLM-Image draws them)."""
    found, start = [], 0
    for rows, columns in grids:
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        found.append(torch.stack([torch.zeros_like(row), row, column], dim=-1).flatten(0, 1) + start)
        start += max(rows, columns)
    return torch.cat(found)
