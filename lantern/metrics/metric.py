"""The protocols of what judges an evaluation: a metric of images and a measure of the output law. Also features of
images, extracted once per set of images, with one batch in memory at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

import torch
from torch import Tensor

from lantern.data.image_sets import Images
from lantern.pipeline import Pipeline

BATCH_SIZE = 64
Result = TypeVar("Result")


class Metric(Protocol):
    """Judges images by their prompts. Its values are keys of a result row; a key with a 95 % interval has <key>_low and
    <key>_high beside it. Inheriting gives the optional methods."""

    def __call__(self, images: Images, prompts: Sequence[str]) -> Mapping[str, float]: ...
    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> Mapping[str, float]: ...  # AR's images

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


def batches(images: Images, size: int = BATCH_SIZE) -> Iterator[Tensor]:
    return (images[start : start + size] for start in range(0, len(images), size))


def size_of(images: Images) -> str:
    """Width and height in pixels."""
    height, width = images[:1].shape[2:]
    return f"{width} x {height}"


def as_bytes(images: Tensor) -> Tensor:
    """Pixels in [0, 1] as bytes, as image files hold them."""
    return (images.contiguous() * 255).round().clamp(0, 255).byte()


@torch.no_grad()
def extract_features(images: Images, network: Callable[[Tensor], Tensor]) -> Tensor:
    """network(images) [N, F], float32. Images are rounded to bytes."""
    found = []
    for batch in batches(images):
        found.append(network(as_bytes(batch).float() / 255).float().cpu())
    return torch.cat(found)


class ImagesMemo(Generic[Result]):
    """Calls `compute` once for each set of images: AR's are judged alone, and again against the method's. A result
    lives as long as its images."""

    def __init__(self, compute: Callable[..., Result]) -> None:
        self._compute = compute
        self._results: list[tuple[ref, Result]] = []

    def __call__(self, images: Images, *others: Any) -> Result:
        """`others` must be the same for the same images."""
        self._results = [(key, result) for key, result in self._results if key() is not None]
        for key, result in self._results:
            if key() is images:
                return result
        self._results.append((ref(images), self._compute(images, *others)))
        return self._results[-1][1]
