"""Images as tokens: `TokenTable(...).split("train")[i]` -> {"tokens": int64 [L], "caption"}; likewise unquantised
latents (LatentTable) and the target's own images (TargetSamples). A split is made once, kept by all it depends on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as Column
from torch import Tensor, nn

from lantern.acceptance.exact import Exact
from lantern.data.cached_table import Budget, TimeShare, cached_rows
from lantern.data.splits import IndexedSplit, Split, Splits, UnusableImageError, report_skipped
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError, check_least
from lantern.identity import digest, state_hash, target_hashes
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.weights_folder import tokens_hash
from lantern.noise import image_seed
from lantern.pipeline import Pipeline
from lantern.runtime.memory import check_memory
from lantern.sampling import Sampling
from lantern.training.data_module import spaced
from lantern.training.run.budget import share_s
from lantern.types import Target
from lantern.verification import SharedNoise

ENCODE_BATCH = 32
ENCODED_PER_SHARD, SAMPLED_PER_SHARD = 256, 128  # at most so many are computed again after a killed run
FEW = 8  # samples drawn at once where time is short
LEAST = {"train": 32, "validation": FEW}  # images of a split made whatever their time
MAX_CODES = 2**16  # of a uint16 column
CAPTION_BYTES = 400  # of a long caption, for estimates
MIN_DOWNSAMPLING = 8  # of all supported image tokenizers, for estimates
COLUMNS = {  # problem: why an image could not be decoded, or empty
    kind: Features({kind: Column(Value(dtype)), "caption": Value("string"), "problem": Value("string")})
    for kind, dtype in (("tokens", "uint16"), ("latents", "float16"))
}


class TableSplit(Sequence):
    """The rows of a table, read from its memory-mapped files at each access."""

    def __init__(
        self, rows: Dataset, column: str, read: Callable[[np.ndarray], Tensor], fingerprint: str,
        noise_seeds: Sequence[int] = (), whole: int = 0,
    ) -> None:  # fmt: skip
        """read: an entry of `column` -> "tokens"; noise_seeds: one per image if the target drew the images; items then
        have "noise_seed"; whole: images of the data set, of which time may allow a part."""
        self.rows = rows.with_format("arrow")  # "numpy" imports what some torchvisions lack
        self.column, self.read, self.fingerprint, self.noise_seeds = column, read, fingerprint, noise_seeds
        self.whole = whole

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        stored = row[self.column].combine_chunks().flatten().to_numpy()
        item = {"tokens": self.read(stored), "caption": row["caption"][0].as_py()}
        return item | {"noise_seed": self.noise_seeds[index]} if self.noise_seeds else item

    @property
    def captions(self) -> list[str]:
        return self.rows["caption"][:].to_pylist()


def _read_tokens(stored: np.ndarray) -> Tensor:
    return torch.from_numpy(stored.astype(np.int64))


class TokenTable:
    """Tokens of a data set of captioned images, within `budget_gib` of disk."""

    kind = "tokens"

    def __init__(
        self, images: Splits, tokenizer: nn.Module, cache_dir: str, budget_gib: float = 20.0,
        num_tokens: int | None = None, max_time: str | None = None, share: float | None = None, most: int | None = None,
    ) -> None:  # fmt: skip
        """`tokenizer` has encode(images [B, 3, H, W] in [0, 1]) -> [B, L] and codebook [V, C]; num_tokens: the target's
        L; share: part of max_time for as many images as fit, in random order; most: images of a split, for trials."""
        self.images, self.tokenizer, self.cache_dir, self.budget_gib = images, tokenizer, Path(cache_dir), budget_gib
        self.num_tokens, self.limit_s, self.is_part, self.most = num_tokens, share_s(max_time, share), bool(share), most
        num_codes, self.num_channels = tokenizer.codebook.shape
        check_codes(num_codes)
        hash_of = tokens_hash if isinstance(tokenizer, VQTokenizer) else state_hash  # others may name no decoder
        self.tokenizer_hash = hash_of(tokenizer)

    def split(self, name: str) -> TableSplit:
        """Encodes the split at the first call; later calls, in any process, read the cached table."""
        source, channels = self.images.split(name), self.num_channels if self.kind == "latents" else 1
        side = source.size if isinstance(source, IndexedSplit) else source[0]["image"].shape[0]
        places = range(len(source))[: self.most]
        size = len(places) * (2 * channels * (side * side // MIN_DOWNSAMPLING**2) + CAPTION_BYTES)
        budget = Budget(f"{self.kind} of {len(places):,} {name} images", size, self.budget_gib)
        parts = ["shuffled"] * self.is_part + [str(len(places))] * (len(places) < len(source))
        key = digest([source.fingerprint, self.tokenizer_hash, "problems", *parts])
        folder = self.cache_dir / f"{self.kind}-{name}-{key}"
        shard, limit = ENCODE_BATCH if self.is_part else ENCODED_PER_SHARD, TimeShare(self.limit_s, LEAST[name])
        make = partial(self._rows, source, Random(0).sample(places, len(places)) if self.is_part else places)
        rows = cached_rows(folder, make, places, COLUMNS[self.kind], shard, ENCODE_BATCH, budget, limit)
        key = key if len(rows) == len(places) else digest([key, len(rows)])
        problems = rows["problem"]
        if any(problems):
            skipped = {name: problem for name, problem in zip(rows["caption"], problems, strict=True) if problem}
            report_skipped(skipped, len(rows), f"the {name} images", folder.expanduser() / "skipped.txt")
            rows = rows.select([i for i, problem in enumerate(problems) if not problem])
        self._check_size(side, len(rows[0][self.kind]) // channels)
        return TableSplit(rows, self.kind, self._read, key, whole=len(source))

    def few(self, name: str, count: int) -> list[dict[str, Any]]:
        """Items of `count` evenly spaced images of a split, encoded and not stored; unusable ones are left out."""
        source = self.images.split(name)
        rows = self._rows(source, range(len(source)), spaced(len(source), count))
        return [{"tokens": self._read(row[self.kind]), "caption": row["caption"]} for row in rows if not row["problem"]]

    def _rows(self, source: Split, order: Sequence[int], places: Sequence[int]) -> Iterator[dict[str, Any]]:
        items = []
        for place in places:
            try:
                items.append(source[order[place]])
            except UnusableImageError as error:  # its name is in the place of a caption
                yield {self.kind: [], "caption": error.name, "problem": error.problem}
        if not items:
            return
        images = torch.from_numpy(np.stack([item["image"] for item in items]))
        encoded = self._encode(images)
        self._check_size(images.shape[1], encoded.shape[1])
        for item, row in zip(items, encoded, strict=True):
            yield {self.kind: row.flatten().numpy(), "caption": item["caption"], "problem": ""}

    def _encode(self, images: Tensor) -> Tensor:  # uint8 [B, H, W, 3] -> uint16 [B, L]
        return encode(self.tokenizer.encode, images, self.tokenizer.codebook.device).to(torch.uint16)

    _read = staticmethod(_read_tokens)

    def _check_size(self, pixels: int, num_tokens: int) -> None:
        if self.num_tokens not in (None, num_tokens):
            raise LanternError(
                f"images of {pixels} pixels have {num_tokens} tokens, this target's have {self.num_tokens}; give "
                "images of one's own with data.size=<the side of the target's images>"
            )


class LatentTable(TokenTable):
    """Unquantised latents, as "tokens": float32 [L, C], stored in half precision."""

    kind = "latents"

    def _encode(self, images: Tensor) -> Tensor:  # uint8 [B, H, W, 3] -> float16 [B, L, C]
        return encode(self.tokenizer.latents, images, self.tokenizer.codebook.device).flatten(1, 2).half()

    def _read(self, stored: np.ndarray) -> Tensor:  # type: ignore[override]
        return torch.from_numpy(stored.astype(np.float32)).unflatten(0, (-1, self.num_channels))


def tokens_for(
    target: Target, images: Splits, cache_dir: str, budget_gib: float, max_time: str | None = None,
    share: float | None = None, most: int | None = None,
) -> TokenTable:  # fmt: skip
    """A TokenTable of the target's own tokenizer."""
    if not hasattr(target.tokenizer, "encode"):
        raise LanternError(f"{type(target.tokenizer).__name__} decodes only; let the target draw: task=drafter_self")
    return TokenTable(images, target.tokenizer, cache_dir, budget_gib, target.num_tokens, max_time, share, most)


def check_codes(count: int) -> None:
    """Refuses more codes than a table's column holds."""
    if count > MAX_CODES:
        raise LanternError(f"this model has {count} codes; token tables hold {MAX_CODES}")


@torch.inference_mode()
def encode(read: Callable[[Tensor], Tensor], images: Tensor, device: torch.device) -> Tensor:
    """Applies a tokenizer's `read` to images uint8 [B, H, W, 3]; returns the result on the host. It runs in float32, so
    that tokens are equal on every machine, except for ties."""
    return read(images.to(device).permute(0, 3, 1, 2).float() / 255).cpu()


class TargetSamples:
    """The target's own images for the captions of a data set, whose images are not read. They are drawn once, by plain
    decoding under shared noise: items have "noise_seed" as well."""

    def __init__(
        self, target: Target, captions: Splits, sampling: Sampling, cache_dir: str, seed: int, batch_size: int,
        num_images: int | None = None, budget_gib: float = 20.0, max_time: str | None = None,
        share: float | None = None,
    ) -> None:  # fmt: skip
        """num_images: images per split, for evenly spaced captions, or cycling through them if there are fewer; None:
        one image per caption; share: part of max_time for as many of them as fit, in random order, a few at once."""
        self.limit_s, self.is_part = share_s(max_time, share), bool(share)
        check_codes(target.vocab_size)
        self.pipeline = Pipeline(target, NoDrafter(), SharedNoise(), Exact(), sampling)
        self.captions, self.cache_dir, self.seed, self.batch_size = captions, Path(cache_dir), seed, batch_size
        self.num_images, self.budget_gib = num_images, budget_gib

    def split(self, name: str) -> TableSplit:
        """Samples at the first call; later calls read the cached table."""
        check_least(_place(name), 1, num_images=self.num_images, batch_size=self.batch_size)
        known, target = list(self.captions.split(name).captions), self.pipeline.target
        count = len(known) if self.num_images is None else self.num_images  # the first may all be of one folder
        captions = [known[i % len(known)] for i in (spaced(len(known), count) if count < len(known) else range(count))]
        if self.is_part:
            captions = Random(0).sample(captions, len(captions))
        shard, limit = FEW if self.is_part else SAMPLED_PER_SHARD, TimeShare(self.limit_s, LEAST[name])
        made_by = *target_hashes(target), target.reading_hash(captions[0]), list(target.grid)
        settings = str(target.embed_weight.dtype), asdict(self.pipeline.sampling)
        key = digest([*made_by, *settings, captions, self.seed, name])
        size = len(captions) * (2 * target.num_tokens + CAPTION_BYTES)
        budget = Budget(f"{len(captions):,} {name} samples", size, self.budget_gib)
        rows = cached_rows(
            self.cache_dir / f"samples-{name}-{key}", partial(self._rows, name, captions), range(len(captions)),
            COLUMNS["tokens"], shard, min(self.batch_size, shard), budget, limit,
        )  # fmt: skip
        target.release()  # training may need the cache's memory
        fingerprint = key if len(rows) == len(captions) else digest([key, len(rows)])
        seeds = self._seeds(name, captions, range(len(rows)))
        return TableSplit(rows, "tokens", _read_tokens, fingerprint, seeds, len(captions))

    def _seeds(self, name: str, captions: list[str], indices: Sequence[int]) -> list[int]:
        return [image_seed(self.seed, f"{name} {captions[i]}", i) for i in indices]

    def _rows(self, name: str, captions: list[str], indices: Sequence[int]) -> Iterator[dict]:
        prompts = [captions[i] for i in indices]
        check_memory(self.pipeline.target, self.pipeline.drafter.num_nodes, len(prompts), f"{_place(name)}.batch_size")
        seeds = self._seeds(name, captions, indices)
        generation = self.pipeline.generate(prompts, seeds, batch_size=len(prompts))
        for caption, tokens in zip(prompts, generation.tokens, strict=True):
            yield {"tokens": tokens.cpu().numpy().astype(np.uint16), "caption": caption, "problem": ""}


def _place(name: str) -> str:
    """Where a split's settings are in conf/task."""
    return "samples" if name == "train" else f"batches.splits.{name}"
