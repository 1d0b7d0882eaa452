"""The text encoder's caption features, computed once: `CaptionTable(...).split(name)` returns the items of another data
set and replaces the target's conditioner by one that reads their captions from disk."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Value
from torch import Tensor

from lantern.data.cached_table import Budget, cache_key, cached_batches
from lantern.data.splits import Split, Splits
from lantern.errors import LanternError
from lantern.identity import tensor_hash
from lantern.models.llamagen.target import Conditioner, LlamaGenTarget

ENCODE_BATCH = 32
BATCHES_PER_SHARD = 16  # at most so many are encoded again after a killed run
COLUMNS = Features({name: Value("binary") for name in ("features", "visible")} | {"caption": Value("string")})


class StoredCaptions:
    """A Conditioner: reads captions from a table, and encodes those that are not in it."""

    def __init__(self, rows: Dataset, encoder: Conditioner, like: Tensor) -> None:
        """like [1, P, C]: the encoder's features of any caption."""
        self.rows, self.encoder, self.like = rows, encoder, like
        self.weights_hash = getattr(encoder, "weights_hash", None)  # tables of features are told apart by it
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
    """Any data set with cached caption features. Raises LanternError rather than fill more than `budget_gib` of
    disk."""

    def __init__(self, splits: Splits, target: LlamaGenTarget, cache_dir: str, budget_gib: float) -> None:
        self.splits, self.target, self.cache_dir, self.budget_gib = splits, target, Path(cache_dir), budget_gib

    def split(self, name: str) -> Split:
        """Encodes the captions of the split at the first call; later calls read them. Returns the split itself."""
        items, encoder = self.splits.split(name), getattr(self.target, "conditioner", None)
        if encoder is None:
            raise LanternError("this target reads captions as tokens, which need no table; leave +captions=disk out")
        captions, source = sorted(set(items.captions)), encoder
        while isinstance(source, StoredCaptions):  # features made in batches differ from its own in the last bits
            source = source.encoder
        like = source(captions[:1])[0]
        if like.dim() != 3:
            raise LanternError("this target reads class labels, which need no table; leave +captions=disk out")

        size = len(captions) * like[0].nbytes
        budget = Budget(f"features of {len(captions):,} captions", size, self.budget_gib, "caption_table.budget_gib")
        key = cache_key(captions, tensor_hash(like), str(like.dtype))
        folder, encode = self.cache_dir / f"captions-{name}-{key}", partial(_encode, source, captions)
        table = cached_batches(folder, encode, len(captions), ENCODE_BATCH, COLUMNS, BATCHES_PER_SHARD, budget)
        self.target.conditioner = StoredCaptions(table, encoder, like)
        return items


def _encode(encoder: Conditioner, all_captions: list[str], indices: list[int]) -> Iterator[dict[str, Any]]:
    captions = [all_captions[i] for i in indices]
    features, visible = encoder(captions)
    if not bool(features[visible.bool()].isfinite().all()):
        raise LanternError(f"the text encoder gives no finite features for one of {captions}; run it in float32")
    for caption, rows, shown in zip(captions, features, visible.bool(), strict=True):
        yield {"caption": caption, "features": _bytes(rows[shown]), "visible": _bytes(shown)}


def _bytes(values: Tensor) -> bytes:
    return values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
