"""Scenes as data sets: `RenderedScenes(...).split("train")[i]` -> {"image": uint8 [128, 128, 3], "caption"}."""

import inspect
from collections.abc import Sequence
from typing import Any

from lantern.errors import check_least
from lantern.identity import code_of, digest
from lantern.scenes import captions, rendering, textures
from lantern.scenes.rendering import SPLITS, describe, render

NUM_SERIES, SEEDS_PER_SERIES = 100, 10**7
RENDERER = digest([*(code_of(inspect.getsource(module)) for module in (captions, textures, rendering))])


class RenderedSplit(Sequence):
    """Scenes of consecutive seeds, rendered at each access (3 ms)."""

    def __init__(self, seeds: range) -> None:
        self.seeds = seeds
        self.fingerprint = digest([RENDERER, seeds.start, seeds.stop])

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image, scene = render(self.seeds[index])
        return {"image": image, "caption": scene.caption}

    @property
    def captions(self) -> list[str]:
        return [describe(seed).caption for seed in self.seeds]


class RenderedScenes:
    """`seed` selects one of a hundred disjoint series."""

    def __init__(self, num_train: int, num_validation: int, seed: int = 0) -> None:
        self.sizes, self.seed = {"train": num_train, "validation": num_validation}, seed

    def split(self, name: str) -> RenderedSplit:
        count = self.sizes[name]
        check_least("data", 1, SEEDS_PER_SERIES, **{f"num_{name}": count})
        check_least("data", 0, NUM_SERIES - 1, seed=self.seed)
        start = SPLITS[name].start + self.seed * SEEDS_PER_SERIES
        return RenderedSplit(range(start, start + count))
