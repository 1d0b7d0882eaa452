"""Features computed once and then read from disk at each step. FeatureTable: the frozen target's features of images,
worth the disk space if one target is distilled many times. CaptionTable: the text encoder's features of captions."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from datasets import Dataset, Features, Value
from torch import Tensor

from lantern.data.cached_table import Budget, TimeShare, cache_key, cached_rows
from lantern.data.splits import Split, Splits
from lantern.errors import LanternError
from lantern.identity import target_hashes, tensor_hash
from lantern.models.llamagen.target import Conditioner, LlamaGenTarget
from lantern.training.drafter.recipe import Layers
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.run.budget import share_s
from lantern.training.tables.tokens import LEAST
from lantern.types import AnyText, PromptReader

FEATURE_BATCH, ENCODE_BATCH = 16, 32  # images, captions
CAPTIONS_PER_SHARD = 512  # at most so many are encoded again after a killed run
SHARD_BYTES = 2**25  # of images' features, which are in memory while they are made
IMAGE_COLUMNS = Features({"features": Value("large_binary"), "dtype": Value("string"), "caption": Value("string")})
CAPTION_COLUMNS = Features({"features": Value("binary"), "visible": Value("binary"), "caption": Value("string")})


class FeatureSplit(Sequence):
    """Items of a token split, with features read from disk at each access."""

    def __init__(
        self, items: Split, rows: Dataset, order: Sequence[int], shape: tuple[int, int], fingerprint: str
    ) -> None:
        """order: item indices, those of the rows first; further items have no features; shape: (R, P + L - 1)."""
        self.items, self.rows, self.shape, self.fingerprint = items, rows, shape, fingerprint
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
    """Features of a token data set, within `budget_gib` of disk: items have {"tokens", "caption", "features" [R,
    P + L - 1, F]}."""

    def __init__(
        self, tokens: Splits, target: LlamaGenTarget, cache_dir: str, budget_gib: float, layers: Layers | None = None,
        max_time: str | None = None, share: float | None = None,
    ) -> None:  # fmt: skip
        """layers: target layers whose inputs are stored after its features, as Recipe.layers; max_time: the trainer's;
        share: part of it for as many images as fit, in random order, as a folder's first images may be of one class."""
        if share is not None and not 0 < share < 1:
            raise LanternError(f"features_share={share} is no part of a time; give one between 0 and 1")
        self.max_time, self.share = max_time, share
        self.tokens, self.target, self.cache_dir, self.budget_gib = tokens, target, Path(cache_dir), budget_gib
        self.layers = layers(target.num_layers) if layers else ()

    def split(self, name: str) -> FeatureSplit:
        """Computes the features of the split at the first call; later calls read them."""
        items, target, weight = self.tokens.split(name), self.target, self.target.embed_weight
        reads = target.reading_hash(items[0]["caption"])
        key = cache_key(
            items.fingerprint, *target_hashes(target), reads, target.guidance, str(weight.dtype), *self.layers, "mixed"
        )
        shape = target.guidance, target.prefix_len + target.num_tokens - 1
        size = shape[0] * shape[1] * (1 + len(self.layers)) * weight.shape[1] * weight.element_size()
        budget = Budget(
            f"features of {len(items):,} {name} images", len(items) * size, self.budget_gib,
            "feature_table.budget_gib", "raise it, give fewer, or features=on_the_fly",
        )  # fmt: skip
        shard = FEATURE_BATCH * max(1, SHARD_BYTES // (FEATURE_BATCH * size))
        order = Random(0).sample(range(len(items)), len(items))
        limit = TimeShare(shard, LEAST, share_s(self.max_time, self.share))
        rows = cached_rows(
            self.cache_dir / f"features-{name}-{key}", partial(self._rows, items, order), range(len(items)),
            IMAGE_COLUMNS, 1, shard, FEATURE_BATCH, budget, limit,
        )  # fmt: skip
        return FeatureSplit(items, rows, order, shape, key)

    def _rows(self, items: Split, order: Sequence[int], places: Sequence[int]) -> Iterator[dict[str, Any]]:
        chosen = [items[order[place]] for place in places]
        tokens = torch.stack([item["tokens"] for item in chosen]).to(self.target.codebook.device)
        captions = [item["caption"] for item in chosen]
        features = target_features(self.target, tokens, captions, self.layers)
        dtype = str(features.dtype).removeprefix("torch.")
        for caption, rows in zip(captions, features, strict=True):
            yield {"features": _bytes(rows), "dtype": dtype, "caption": caption}


class StoredCaptions(AnyText):
    """A Conditioner: reads captions from a table, and encodes those that are not in it."""

    def __init__(self, rows: Dataset, encoder: Conditioner, like: Tensor) -> None:
        """like [1, P, C]: the encoder's features of any caption."""
        self.rows, self.encoder, self.like = rows, encoder, like
        if isinstance(encoder, PromptReader):
            self.weights_hash = encoder.weights_hash  # part of the keys of feature tables
            self.reads_any_text, self.words, self.check = encoder.reads_any_text, encoder.words, encoder.check
        self.row_of = {caption: i for i, caption in enumerate(rows["caption"])}

    def __call__(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:  # -> [B, P, C], [B, P]
        read = [self._read(p) if p in self.row_of else self.encoder([p]) for p in prompts]
        return tuple(torch.cat(part) for part in zip(*read, strict=True))

    def _read(self, caption: str) -> tuple[Tensor, Tensor]:
        row = self.rows[self.row_of[caption]]
        visible = torch.frombuffer(bytearray(row["visible"]), dtype=torch.bool)[None]
        features = torch.zeros_like(self.like)  # pads are masked
        stored = torch.frombuffer(bytearray(row["features"]), dtype=self.like.dtype)
        features[visible.to(features.device)] = stored.view(-1, self.like.shape[2]).to(features.device)
        return features, visible.to(features.device)


class CaptionTable:
    """Any data set with cached caption features, within `budget_gib` of disk. The target's conditioner is replaced by
    one that reads them."""

    def __init__(self, splits: Splits, target: LlamaGenTarget, cache_dir: str, budget_gib: float) -> None:
        self.splits, self.target, self.cache_dir, self.budget_gib = splits, target, Path(cache_dir), budget_gib

    def split(self, name: str) -> Split:
        """Encodes the captions of the split at the first call; later calls read them. Returns the split itself."""
        items, encoder = self.splits.split(name), getattr(self.target, "conditioner", None)
        if encoder is None:
            raise LanternError("this target reads captions as tokens, which need no table; leave +captions=disk out")
        captions, source = sorted(set(items.captions)), encoder
        while isinstance(source, StoredCaptions):  # stored features, made in batches, differ in the last bits
            source = source.encoder
        like = source(captions[:1])[0]
        if like.dim() != 3:
            raise LanternError("this target reads class labels, which need no table; leave +captions=disk out")

        size = len(captions) * like[0].nbytes
        budget = Budget(f"features of {len(captions):,} captions", size, self.budget_gib, "caption_table.budget_gib")
        key = cache_key(captions, tensor_hash(like), str(like.dtype))
        table = cached_rows(
            self.cache_dir / f"captions-{name}-{key}", partial(_encode, source), captions, CAPTION_COLUMNS,
            1, CAPTIONS_PER_SHARD, ENCODE_BATCH, budget,
        )  # fmt: skip
        self.target.conditioner = StoredCaptions(table, encoder, like)
        return items


def _encode(encoder: Conditioner, captions: Sequence[str]) -> Iterator[dict[str, Any]]:
    features, visible = encoder(captions)
    if not bool(features[visible.bool()].isfinite().all()):
        raise LanternError(f"the text encoder gives no finite features for one of {captions}; run it in float32")
    for caption, rows, shown in zip(captions, features, visible.bool(), strict=True):
        yield {"caption": caption, "features": _bytes(rows[shown]), "visible": _bytes(shown)}


def _bytes(values: Tensor) -> bytes:
    return values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
