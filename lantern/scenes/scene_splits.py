"""Scenes as data sets: `Scenes(...).split("train")[i]` -> {"image": uint8 [128, 128, 3], "caption", "texture",
"shape", "colour"}. `Scenes` caches them on disk, memory mapped; `RenderedScenes` renders them at each access."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Features, Value
from torch import Tensor

from lantern.data.cached_rows import cache_key, cached_rows
from lantern.errors import LanternError
from lantern.identity import code_of
from lantern.scenes import captions, rendering, textures
from lantern.scenes.rendering import SPLITS, describe, render, render_caption

NUM_SERIES, SEEDS_PER_SERIES = 100, 10**7
FIRST_REFERENCE = SPLITS["test"].start + 500_000_000  # far from the test scenes whose captions are the prompts
RENDERER = cache_key(*(code_of(inspect.getsource(module)) for module in (captions, textures, rendering)))
FEATURES = Features(
    {"image": Value("binary")} | {name: Value("string") for name in ("caption", *captions.Scene._fields)}
)


class RenderedSplit(Sequence):
    """Scenes of consecutive seeds, rendered at each access (3 ms)."""

    def __init__(self, seeds: range) -> None:
        self.seeds = seeds
        self.fingerprint = cache_key(RENDERER, seeds.start, seeds.stop)

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return _item(self.seeds[index])

    @property
    def captions(self) -> list[str]:
        """All captions, without rendering."""
        return [describe(seed).caption for seed in self.seeds]


class StoredSplit(Sequence):
    """The same items from a memory mapped table."""

    def __init__(self, rows: Dataset, fingerprint: str) -> None:
        self.rows, self.fingerprint = rows, fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        image = np.frombuffer(row["image"], np.uint8).reshape(textures.SIZE, textures.SIZE, 3)
        return row | {"image": image.copy()}  # torch.from_numpy needs a writable array

    @property
    def captions(self) -> list[str]:
        """All captions, without reading an image."""
        return list(self.rows["caption"])


class RenderedScenes:
    """Renders at each access, for runs that use each scene once. `seed` selects one of a hundred disjoint series."""

    def __init__(
        self, num_train: int, num_validation: int, num_test: int = 0, num_novel: int = 0, seed: int = 0
    ) -> None:
        self.sizes = {"train": num_train, "validation": num_validation, "test": num_test, "novel": num_novel}
        self.seed = seed

    def split(self, name: str) -> RenderedSplit:
        """train, validation and test show the training triples; novel the held-out ones."""
        return RenderedSplit(seeds_of(name, self.sizes[name], self.seed))


class Scenes:
    """The same scenes, each split rendered once into `cache_dir` (48 KiB a scene) and memory mapped."""

    def __init__(self, cache_dir: str, num_workers: int = 2, **series: int) -> None:
        """series: the arguments of RenderedScenes."""
        self.rendered = RenderedScenes(**series)
        self.cache_dir, self.num_workers = Path(cache_dir), num_workers

    def split(self, name: str) -> StoredSplit:
        """As RenderedScenes.split."""
        source = self.rendered.split(name)
        folder = self.cache_dir / f"scenes-{name}-{source.fingerprint}"
        rows = cached_rows(folder, _rows, list(source.seeds), FEATURES, self.num_workers)
        return StoredSplit(rows, source.fingerprint)


def seeds_of(split: str, count: int, series: int) -> range:
    """The scene seeds of a split."""
    if not 0 < count <= SEEDS_PER_SERIES or not 0 <= series < NUM_SERIES:
        raise LanternError(
            f"{count} scenes of series {series} for split {split!r}: ask for 1 to {SEEDS_PER_SERIES} scenes "
            f"(data.num_{split}) and a seed from 0 to {NUM_SERIES - 1} (data.seed)"
        )
    start = SPLITS[split].start + series * SEEDS_PER_SERIES
    return range(start, start + count)


def scene_references(prompts: Sequence[str], count: int) -> Tensor:
    """Real images for the fidelity metrics, [count, 3, H, W] in [0, 1]: scenes of the first `count` prompts, cycling,
    of seeds that nothing else uses. LanternError for a prompt that is no caption of a scene."""
    try:
        scenes = [render_caption(prompts[i % len(prompts)], FIRST_REFERENCE + i) for i in range(count)]
    except LanternError as error:
        raise LanternError(
            f"{error}; for prompts that are no scenes give real images of your own by "
            "'metrics=[fidelity,diversity,pairs]' metrics.fidelity.references.path=<module.function>, a function "
            "(prompts, count) -> [N, 3, H, W], or judge without any by 'metrics=[diversity,pairs]', or not at all by "
            "quality.num_images=0"
        ) from error
    return torch.from_numpy(np.stack(scenes)).permute(0, 3, 1, 2).float() / 255


def _item(seed: int) -> dict[str, Any]:
    image, scene = render(seed)
    return {"image": image, "caption": scene.caption} | scene._asdict()


def _rows(seeds: list[int]) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        item = _item(seed)
        yield item | {"image": item["image"].tobytes()}
