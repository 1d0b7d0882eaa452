"""The protocols of what judges an evaluation: a metric of images and a measure of the output law. Also features of
images, extracted once per set of images, with one batch in memory at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from lantern.data.image_sets import Images, as_bytes, batches
from lantern.errors import LanternError
from lantern.pipeline import Pipeline

Figures = Mapping[str, object]  # by their keys of a result row


class Metric(Protocol):
    """Judges images by their prompts. Its values are keys of a result row; a key with a 95 % interval has <key>_low and
    <key>_high beside it. Inheriting gives the optional methods; `min_images` of the class: how many it needs."""

    def __call__(self, images: Images, prompts: Sequence[str]) -> Mapping[str, float]: ...
    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> Mapping[str, float]: ...  # AR's images

    def prepare(self, prompts: Sequence[str]) -> None:
        """LanternError for prompts that it cannot judge, before any decoding."""

    def protocol(self, prompts: Sequence[str]) -> Mapping[str, object]:
        """What it measures with, such as hashes and sizes."""
        return {}

    def warnings(self, prompts: Sequence[str]) -> Sequence[str]:
        return []


def scored(
    metrics: Mapping[str, Metric], images_for: Callable[[str], Images], prompts: Sequence[str],
    plain: Images | None = None,
) -> tuple[dict[str, object], dict[str, object], list[str]]:  # fmt: skip
    """The figures of all metrics, their protocols, and their warnings. images_for: what the metric of a name reads;
    plain: plain decoding's images, if another side's. LanternError for a key of two metrics, unless protocols agree."""
    values, protocols, givers = dict[str, object](), dict[str, object](), dict[str, str]()
    for name, metric in metrics.items():
        images = images_for(name)
        found = {**metric(images, prompts), **({} if plain is None else metric.against(images, plain, prompts))}
        settings = metric.protocol(prompts)  # some are known once images were judged
        differing = (key for key, value in settings.items() if key not in protocols or protocols[key] != value)
        for key in filter(givers.__contains__, (*found, *differing)):
            raise LanternError(f"the metrics {givers[key]} and {name} both give {key}; leave one out, or rename it")
        values, protocols = values | found, {**protocols, **settings}
        givers |= dict.fromkeys([*found, *settings], name)
    return values, protocols, [warning for metric in metrics.values() for warning in metric.warnings(prompts)]


class LawMeasure(Protocol):
    """The distance of the output law from the target's, as keys of a result row. foreseen: by kind its units, of which
    ProgressLine.done is told, and the images that one takes as long as, plain ones but for kind "method"."""

    def foreseen(self, pipeline: Pipeline) -> Mapping[str, tuple[float, float]]: ...

    def measure(self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Figures: ...


def size_of(images: Images) -> str:
    """Width and height in pixels."""
    height, width = images[:1].shape[2:]
    return f"{width} x {height}"


@torch.no_grad()
def extract_features(images: Images, network: Callable[[Tensor], Tensor]) -> Tensor:
    """network(images) [N, F], float32. Images are rounded to bytes."""
    return torch.cat([network(as_bytes(batch).float() / 255).float().cpu() for batch in batches(images)])
