"""The frozen target's features of images, computed once and then read from disk at each step: worth the disk space if
one target is distilled many times."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from datasets import Dataset, Features, Value

from lantern.data.cached_table import Budget, TimeShare, cached_rows
from lantern.data.splits import Split, Splits
from lantern.identity import digest, target_hashes
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.training.drafter.recipe import Layers
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.run.budget import share_s
from lantern.training.tables.tokens import LEAST

FEATURE_BATCH = 16  # images
SHARD_BYTES = 2**25  # of images' features, which are in memory while they are made
IMAGE_COLUMNS = Features({"features": Value("large_binary"), "dtype": Value("string"), "caption": Value("string")})


class FeatureSplit(Sequence):
    """Items of a token split, with features read from disk at each access."""

    def __init__(self, items: Split, rows: Dataset, order: Sequence, shape: tuple[int, int], fingerprint: str) -> None:
        """order: item indices, those of the rows first; further items have no features; shape: (R, P + L - 1)."""
        self.items, self.rows, self.shape, self.fingerprint = items, rows, shape, fingerprint
        self.whole = getattr(items, "whole", len(items))
        self.places = sorted((item, row) for row, item in enumerate(order[: len(rows)]))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index, place = self.places[index]
        row = self.rows[place]
        features = torch.frombuffer(bytearray(row["features"]), dtype=getattr(torch, row["dtype"]))
        return self.items[index] | {"features": features.view(*self.shape, -1)}

    @property
    def captions(self) -> list[str]:
        known = self.items.captions
        return [known[item] for item, _ in self.places]


class FeatureTable:
    """Features of tokens, `budget_gib` of disk at most: items {"tokens", "caption", "features" [R, P + L - 1, F]}."""

    def __init__(
        self, tokens: Splits, target: LlamaGenTarget, cache_dir: str, budget_gib: float, layers: Layers | None = None,
        max_time: str | None = None, share: float | None = None,
    ) -> None:  # fmt: skip
        """layers: target layers whose inputs are stored after its features, as Recipe.layers; max_time: the trainer's;
        share: part of it for as many images as fit, in random order, as a folder's first images may be of one class."""
        self.limit_s = share_s(max_time, share)
        self.tokens, self.target, self.cache_dir, self.budget_gib = tokens, target, Path(cache_dir), budget_gib
        self.layers = layers(target.num_layers) if layers else ()

    def split(self, name: str) -> FeatureSplit:
        """Computes the features of the split at the first call; later calls read them."""
        items, target, weight = self.tokens.split(name), self.target, self.target.embed_weight
        reads = target.reading_hash(items[0]["caption"])
        made_by = *target_hashes(target), reads, target.guidance, str(weight.dtype), *self.layers
        key = digest([items.fingerprint, *made_by, "mixed"])
        shape = target.guidance, target.prefix_len + target.num_tokens - 1
        size = shape[0] * shape[1] * (1 + len(self.layers)) * weight.shape[1] * weight.element_size()
        budget = Budget(f"features of {len(items):,} {name} images", len(items) * size, self.budget_gib)
        shard = FEATURE_BATCH * max(1, SHARD_BYTES // (FEATURE_BATCH * size))
        order = Random(0).sample(range(len(items)), len(items))
        limit = TimeShare(self.limit_s, LEAST["train"])
        rows = cached_rows(
            self.cache_dir / f"features-{name}-{key}", partial(self._rows, items, order), range(len(items)),
            IMAGE_COLUMNS, shard, FEATURE_BATCH, budget, limit,
        )  # fmt: skip
        return FeatureSplit(items, rows, order, shape, key)

    def _rows(self, items: Split, order: Sequence[int], places: Sequence[int]) -> Iterator[dict[str, Any]]:
        chosen = [items[order[place]] for place in places]
        tokens = torch.stack([item["tokens"] for item in chosen]).to(self.target.codebook.device)
        captions = [item["caption"] for item in chosen]
        features = target_features(self.target, tokens, captions, self.layers)
        dtype = str(features.dtype).removeprefix("torch.")
        for caption, rows in zip(captions, features, strict=True):
            content = rows.cpu().contiguous().view(torch.uint8).numpy().tobytes()
            yield {"features": content, "dtype": dtype, "caption": caption}
