"""Models whose released weights are one file: built from sizes alone, filled strictly from that file, left as they were
drawn (`checkpoint=random`, to time a size without its file), or on the meta device, where shapes are all there is."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from lantern.models.checkpoints import load_strictly, read_weights
from lantern.models.hub import find_file

RANDOM = "random"
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
    """The model on its place, and the file it was read from, if any; see find_file for checkpoint and setting,
    load_strictly for remedy. Buffers that the file does not store are left unset. Raises CheckpointError."""
    if checkpoint == RANDOM and place.type != "meta":
        return drawn(build).to(place, dtype), None
    with torch.device("meta"):
        model = build().to(dtype)
    if place.type == "meta":
        return model, None
    path = find_file(checkpoint, file, setting, 4 * num_parameters(model))
    state = read(path)
    model = model.to_empty(device="cpu")
    load_strictly(model, state, path, remedy)
    return model.to(place), path


def drawn(build: Callable[[], Model]) -> Model:
    """The model with random weights, always the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
