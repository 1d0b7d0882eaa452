"""Builds a model whose weights are one file: loaded strictly from that file, randomly initialised (`checkpoint=random`,
for timing a size without its file), or without storage on the meta device."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from lantern.models.checkpoints import load_strictly, read_weights
from lantern.models.hub import find_file

RANDOM = "random"
Model = TypeVar("Model", bound=nn.Module)


def build_model(
    build: Callable[[], Model], checkpoint: str, file: str, setting: str, remedy: str, device: torch.device,
    dtype: torch.dtype = torch.float32, read: Callable[[Path], dict[str, Tensor]] = read_weights,
) -> tuple[Model, Path | None]:  # fmt: skip
    """The model on `device`, and the file its weights were read from, if any.

    checkpoint, file and setting: see find_file; remedy: see load_strictly. Buffers that are not in the file stay
    uninitialised. Raises CheckpointError.
    """
    if checkpoint == RANDOM and device.type != "meta":
        return randomly_initialised(build).to(device, dtype), None
    with torch.device("meta"):
        model = build().to(dtype)
    if device.type == "meta":
        return model, None
    path = find_file(checkpoint, file, setting, 4 * num_parameters(model))
    state = read(path)
    model = model.to_empty(device="cpu")
    load_strictly(model, state, path, remedy)
    return model.to(device), path


def randomly_initialised(build: Callable[[], Model]) -> Model:
    """The model with random weights of a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def num_parameters(model: nn.Module) -> int:
    """The number of parameters, buffers left out."""
    return sum(parameter.numel() for parameter in model.parameters())
