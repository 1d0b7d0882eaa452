"""The inputs of chosen layers of a transformers body, whatever its forward returns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn


@contextmanager
def kept_inputs(body: nn.ModuleList, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """By layer the input [B R, T, D] of the last forward within the context."""
    inputs: dict[int, Tensor] = {}
    hooks = [body[i].register_forward_pre_hook(partial(_keep, inputs, i)) for i in layers]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def _keep(inputs: dict[int, Tensor], index: int, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
    inputs[index] = given[0]
