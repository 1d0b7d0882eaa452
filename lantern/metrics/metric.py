"""The contracts of what judges an evaluation: a metric of images, and a measure of the output law."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from lantern.pipeline import Pipeline


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
        """Sentences for readers of the row."""
        return []


class LawMeasure(Protocol):
    """The distance of the output law from the target's, as keys of a result row."""

    def measure(
        self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int
    ) -> Mapping[str, object]: ...
