"""Models whose released weights are one file: built from sizes alone, filled strictly from that file, or left on the
meta device, where shapes are all there is."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from lantern.models.checkpoints import load_strictly, read_weights
from lantern.models.files import find_file

Model = TypeVar("Model", bound=nn.Module)


def fill(
    build: Callable[[], Model],
    checkpoint: str,
    file: str,
    setting: str,
    remedy: str,
    place: torch.device,
    dtype: torch.dtype = torch.float32,
    read: Callable[[Path], dict[str, Tensor]] = read_weights,
) -> tuple[Model, Path | None]:
    """The model on its place, and the file it was read from; see find_file for checkpoint and setting, load_strictly
    for remedy. Buffers that no file stores are left unset. Raises CheckpointError."""
    with torch.device("meta"):
        model = build().to(dtype)
    if place.type == "meta":
        return model, None
    path = find_file(checkpoint, file, setting, 4 * num_parameters(model))
    state = read(path)
    model = model.to_empty(device="cpu")
    load_strictly(model, state, path, remedy)
    return model.to(place), path


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
