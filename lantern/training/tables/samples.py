"""The target's own images as tokens: `TargetSamples(...).split("train")[i]` -> {"tokens": int64 [L], "caption",
"noise_seed"}. Sampled once by plain autoregressive decoding under shared noise and cached under a key of the target's
weights, of how it reads captions, and of the settings."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lantern.acceptance.exact import Exact
from lantern.data.cached_rows import cache_key, cached_batches
from lantern.data.disk_budget import Budget
from lantern.data.splits import Splits
from lantern.drafters.none import NoDrafter
from lantern.identity import reading_hash, target_hashes
from lantern.noise import image_seed
from lantern.pipeline import Pipeline
from lantern.runtime.memory import check_drafted
from lantern.sampling import Sampling
from lantern.training.tables.tokens import CAPTION_BYTES, COLUMNS, TokenSplit, check_codes
from lantern.types import Target
from lantern.verification import SharedNoise

BATCHES_PER_SHARD = 4  # at most so many are sampled again after a killed run


class TargetSamples:
    """Samples for the captions of a data set; its images are not read."""

    def __init__(
        self, target: Target, captions: Splits, sampling: Sampling, cache_dir: str, seed: int, batch_size: int,
        num_images: int | None = None, budget_gib: float = 20.0,
    ) -> None:  # fmt: skip
        """num_images: of each split, for captions at even distances in it, or cycling where it has fewer; None: one
        image per caption. LanternError for a codebook that the tables cannot hold."""
        check_codes(target.vocab_size, "target")
        self.pipeline = Pipeline(target, NoDrafter(), SharedNoise(), Exact(), sampling)
        self.captions, self.cache_dir, self.seed, self.batch_size = captions, Path(cache_dir), seed, batch_size
        self.num_images, self.budget_gib = num_images, budget_gib

    def split(self, name: str) -> TokenSplit:
        """Samples at the first call; later calls read the cached table."""
        known = list(self.captions.split(name).captions)
        captions = _chosen(known, len(known) if self.num_images is None else self.num_images)
        settings = asdict(self.pipeline.sampling)
        target = self.pipeline.target
        made_by = *target_hashes(target), reading_hash(target, captions[0]), list(target.grid)
        key = cache_key(*made_by, settings, captions, self.seed, name)

        size = len(captions) * (2 * target.num_tokens + CAPTION_BYTES)
        budget = Budget(f"{len(captions):,} {name} samples", size, self.budget_gib, f"{_place(name)}.budget_gib")
        folder, sample = self.cache_dir / f"samples-{name}-{key}", partial(self._sample, name, captions)
        table = cached_batches(folder, sample, len(captions), self.batch_size, COLUMNS, BATCHES_PER_SHARD, budget)
        target.release()  # training may need the cache's memory
        return TokenSplit(table, key, [self._seed(name, caption, i) for i, caption in enumerate(captions)])

    def _seed(self, name: str, caption: str, index: int) -> int:
        return image_seed(self.seed, f"{name} {caption}", index)

    def _sample(self, name: str, captions: list[str], indices: list[int]) -> Iterator[dict[str, Any]]:
        prompts = [captions[i] for i in indices]
        seeds = [self._seed(name, captions[i], i) for i in indices]
        target, drafter = self.pipeline.target, self.pipeline.drafter
        check_drafted(target, drafter, len(prompts), f"{_place(name)}.batch_size")
        generation = self.pipeline.generate(prompts, seeds, batch_size=len(prompts))
        for caption, tokens in zip(prompts, generation.tokens, strict=True):
            yield {"tokens": tokens.cpu().numpy().astype(np.uint16), "caption": caption}


def _place(name: str) -> str:
    """Where a split's settings are in conf/task."""
    return "samples" if name == "train" else f"batches.splits.{name}"


def _chosen(captions: list[str], count: int) -> list[str]:
    """Of a source whose captions are in the order of its files, the first ones may be of one folder or class alone."""
    if count < len(captions):
        return [captions[i * len(captions) // count] for i in range(count)]
    return [captions[i % len(captions)] for i in range(count)]
