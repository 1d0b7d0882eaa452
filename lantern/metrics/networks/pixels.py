"""Preprocessing of images for networks of `transformers`: one size, normalised channels."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate


class Pixels(nn.Module):
    """Takes images from any device, resizes them to a network's size, bicubic with antialiasing; normalises them."""

    def __init__(self, size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.size, self.resize = size, f"bicubic antialiased {size}"
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, 3, size, size]
        sized = interpolate(images.to(self.mean.device), (self.size, self.size), mode="bicubic", antialias=True).clamp(
            0, 1
        )
        return (sized - self.mean) / self.std


def pixels_of(folder: str | Path, size: int, otherwise: Mapping[str, Sequence[float]] | None = None) -> Pixels:
    """With the mean, the deviation and the crops' size in a folder's preprocessor_config.json; without that file those
    given, or FileNotFoundError."""
    path = Path(folder) / "preprocessor_config.json"
    is_read = path.is_file() or otherwise is None
    found = {**(otherwise or {}), **(json.loads(path.read_text()) if is_read else {})}
    crop = found.get("crop_size", size)
    return Pixels(crop["height"] if isinstance(crop, dict) else crop, found["image_mean"], found["image_std"])
