"""The contracts of what judges an evaluation: a metric of images, and a measure of the output law; and features of
images, extracted once for each set of images."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

import torch
from torch import Tensor

from lantern.pipeline import Pipeline

BATCH_SIZE = 64
Result = TypeVar("Result")


class Metric(Protocol):
    """Judges images [N, 3, H, W] in [0, 1], on the CPU, by their prompts. Its values are keys of a result row; a key
    with a 95 % interval has <key>_low and <key>_high beside it. Inheriting gives the optional methods."""

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Mapping[str, float]: ...
    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> Mapping[str, float]: ...  # AR's images

    def prepare(self, prompts: Sequence[str]) -> None:
        """LanternError for prompts that it cannot judge, before any decoding."""

    def protocol(self, prompts: Sequence[str]) -> Mapping[str, object]:
        """What it measures with, such as hashes and sizes."""
        return {}

    def warnings(self, prompts: Sequence[str]) -> Sequence[str]:
        return []


class LawMeasure(Protocol):
    """The distance of the output law from the target's, as keys of a result row."""

    def measure(
        self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int
    ) -> Mapping[str, object]: ...


@torch.no_grad()
def extract_features(images: Tensor, network: Callable[[Tensor], Tensor]) -> Tensor:
    """images [N, 3, H, W] in [0, 1] -> network(images) [N, F], float64. Images are rounded to bytes, as image files
    would hold them."""
    pixels = (images.contiguous() * 255).round().clamp(0, 255).byte()
    return torch.cat([network(batch.float() / 255).float().cpu() for batch in pixels.split(BATCH_SIZE)]).double()


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
