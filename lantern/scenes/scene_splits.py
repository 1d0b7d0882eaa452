"""Scenes as data sets: `Scenes(...).split("train")[i]` -> {"image": uint8 [128, 128, 3], "caption", "texture",
"shape", "colour"}. `Scenes` caches them on disk, memory mapped; `RenderedScenes` renders them at each access."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Value

from lantern.data.cached_table import cache_key, cached_rows
from lantern.errors import LanternError
from lantern.identity import code_of
from lantern.scenes import captions, rendering, textures
from lantern.scenes.rendering import SPLITS, describe, render

NUM_SERIES, SEEDS_PER_SERIES = 100, 10**7
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
        return [describe(seed).caption for seed in self.seeds]


class StoredSplit(RenderedSplit):
    """The same items from a memory mapped table."""

    def __init__(self, seeds: range, rows: Dataset) -> None:
        super().__init__(seeds)
        self.rows = rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        image = np.frombuffer(row["image"], np.uint8).reshape(textures.SIZE, textures.SIZE, 3)
        return row | {"image": image.copy()}  # torch.from_numpy needs a writable array


class RenderedScenes:
    """Renders at each access, for runs that use each scene once. `seed` selects one of a hundred disjoint series."""

    def __init__(
        self, num_train: int, num_validation: int, num_test: int = 0, num_novel: int = 0, seed: int = 0
    ) -> None:
        self.sizes = {"train": num_train, "validation": num_validation, "test": num_test, "novel": num_novel}
        self.seed = seed

    def split(self, name: str) -> RenderedSplit:
        """train, validation and test show the training triples; novel the held-out ones."""
        count = self.sizes[name]
        if not 0 < count <= SEEDS_PER_SERIES or not 0 <= self.seed < NUM_SERIES:
            raise LanternError(
                f"{count} scenes of series {self.seed} for split {name!r}: ask for 1 to {SEEDS_PER_SERIES} scenes "
                f"(data.num_{name}) and a seed from 0 to {NUM_SERIES - 1} (data.seed)"
            )
        start = SPLITS[name].start + self.seed * SEEDS_PER_SERIES
        return RenderedSplit(range(start, start + count))


class Scenes(RenderedScenes):
    """The same scenes, each split rendered once into `cache_dir` (48 KiB a scene) and memory mapped."""

    def __init__(self, cache_dir: str, num_workers: int = 2, **series: int) -> None:
        """series: the arguments of RenderedScenes."""
        super().__init__(**series)
        self.cache_dir, self.num_workers = Path(cache_dir), num_workers

    def split(self, name: str) -> StoredSplit:
        source = super().split(name)
        folder = self.cache_dir / f"scenes-{name}-{source.fingerprint}"
        rows = cached_rows(folder, _rows, list(source.seeds), FEATURES, self.num_workers)
        return StoredSplit(source.seeds, rows)


def _item(seed: int) -> dict[str, Any]:
    image, scene = render(seed)
    return {"image": image, "caption": scene.caption} | scene._asdict()


def _rows(seeds: list[int]) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        item = _item(seed)
        yield item | {"image": item["image"].tobytes()}
