"""The frozen target's features, computed once: `FeatureTable(...).split("train")[i]` -> {"tokens", "caption",
"features" [R, P + L - 1, F]}. Worth the disk space where one target is distilled many times; else features are computed
on the fly."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Value

from lantern.data.cached_table import Budget, cache_key, cached_batches
from lantern.data.splits import Split, Splits
from lantern.identity import reading_hash, target_hashes
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.training.drafter.recipe import Layers
from lantern.training.drafter.teacher_forcing import target_features

FEATURE_BATCH = 16
SHARD_BYTES = 2**28  # at most so much is computed again after a killed run, and is in memory while it is made
COLUMNS = Features({"features": Value("large_binary"), "dtype": Value("string"), "caption": Value("string")})


class FeatureSplit(Sequence):
    """Items of a token split, with features read from disk at each access."""

    def __init__(self, items: Split, rows: Dataset, shape: tuple[int, int], fingerprint: str) -> None:
        """shape: R and P + L - 1."""
        self.items, self.rows, self.shape, self.fingerprint = items, rows, shape, fingerprint

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        features = torch.frombuffer(bytearray(row["features"]), dtype=getattr(torch, row["dtype"]))
        return self.items[index] | {"features": features.view(*self.shape, -1)}

    @property
    def captions(self) -> list[str]:
        """All captions, without reading features."""
        return self.items.captions


class FeatureTable:
    """Features of a token data set. Raises LanternError rather than fill more than `budget_gib` of disk."""

    def __init__(
        self, tokens: Splits, target: LlamaGenTarget, cache_dir: str, budget_gib: float, layers: Layers | None = None
    ) -> None:
        """layers: of the target whose inputs are stored behind its features, as Recipe.layers."""
        self.tokens, self.target, self.cache_dir, self.budget_gib = tokens, target, Path(cache_dir), budget_gib
        self.layers = layers(target.num_layers) if layers else ()

    def split(self, name: str) -> FeatureSplit:
        """Computes the features of the split at the first call; later calls read them."""
        items, target, weight = self.tokens.split(name), self.target, self.target.embed_weight
        reads = reading_hash(target, items[0]["caption"])
        key = cache_key(
            items.fingerprint, *target_hashes(target), reads, target.guidance, str(weight.dtype), *self.layers
        )
        shape = target.guidance, target.prefix_len + target.num_tokens - 1
        size = shape[0] * shape[1] * (1 + len(self.layers)) * weight.shape[1] * weight.element_size()
        budget = Budget(
            f"features of {len(items):,} {name} images", len(items) * size, self.budget_gib,
            "feature_table.budget_gib", "raise it, give fewer, or features=on_the_fly",
        )  # fmt: skip
        rows = cached_batches(
            self.cache_dir / f"features-{name}-{key}", partial(self._rows, items), len(items), FEATURE_BATCH, COLUMNS,
            max(1, SHARD_BYTES // (FEATURE_BATCH * size)), budget,
        )  # fmt: skip
        return FeatureSplit(items, rows, shape, key)

    def _rows(self, items: Split, indices: list[int]) -> Iterator[dict[str, Any]]:
        chosen = [items[i] for i in indices]
        tokens = torch.stack([item["tokens"] for item in chosen]).to(self.target.codebook.device)
        captions = [item["caption"] for item in chosen]
        features = target_features(self.target, tokens, captions, self.layers).cpu().contiguous()
        dtype = str(features.dtype).removeprefix("torch.")
        for caption, rows in zip(captions, features, strict=True):
            yield {"features": rows.view(torch.uint8).numpy().tobytes(), "dtype": dtype, "caption": caption}
