"""Features of images by any network with a method `features`, extracted once for each set of images."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ref

import torch
from torch import Tensor, nn

from lantern.identity import state_hash

BATCH_SIZE = 64
Result = TypeVar("Result")


@torch.no_grad()
def extract_features(images: Tensor, network: Callable[[Tensor], Tensor]) -> Tensor:
    """images [N, 3, H, W] in [0, 1] -> network(images) [N, F], float64. Images are rounded to bytes, as image files
    would hold them."""
    pixels = (images.contiguous() * 255).round().clamp(0, 255).byte()
    return torch.cat([network(batch.float() / 255).float().cpu() for batch in pixels.split(BATCH_SIZE)]).double()


def network_hash(network: nn.Module) -> str:
    """Twelve hex digits of the SHA-256 of its weights."""
    return state_hash(network)


class TensorMemo(Generic[Result]):
    """Calls `compute` once for each tensor: AR's images are judged alone, and again against the method's. A result
    lives as long as its tensor."""

    def __init__(self, compute: Callable[..., Result]) -> None:
        self._compute = compute
        self._results: list[tuple[ref, Result]] = []

    def __call__(self, images: Tensor, *others: Any) -> Result:
        """`others` must be the same for the same images."""
        self._results = [(key, result) for key, result in self._results if key() is not None]
        for key, result in self._results:
            if key() is images:
                return result
        self._results.append((ref(images), self._compute(images, *others)))
        return self._results[-1][1]
