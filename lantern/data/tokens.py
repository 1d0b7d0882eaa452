"""Images as VQ tokens: `TokenTable(...).split("train")[i]` -> {"tokens": int64 [L], "caption"}.
A split is encoded once by the frozen tokenizer and kept under a key of the images and the tokenizer's weights."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as Column
from torch import Tensor, nn

from lantern.data.cache import cached_rows, fingerprint
from lantern.data.splits import Splits
from lantern.models.checkpoints import weights_hash
from lantern.models.llamagen.loading import load_tokenizer

ENCODED_AT_ONCE = 32
COLUMNS = Features({"tokens": Column(Value("uint16")), "caption": Value("string")})  # of every table of tokens


class TokenSplit(Sequence):
    """The rows of a token table, tokens in memory (two bytes each)."""

    def __init__(self, rows: Dataset, fingerprint: str) -> None:
        columns = rows.with_format("numpy")
        self.tokens = torch.from_numpy(np.stack(columns["tokens"][:]).astype(np.int32))  # [n, L]
        self.captions: list[str] = list(rows["caption"])
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.captions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": self.tokens[index].long(), "caption": self.captions[index]}


class TokenTable:
    """Any captioned images through a frozen tokenizer."""

    def __init__(self, images: Splits, tokenizer: str, cache_dir: str) -> None:
        """`tokenizer` is a weights folder."""
        self.images, self.tokenizer, self.cache_dir = images, load_tokenizer(tokenizer), Path(cache_dir)
        self.tokenizer_hash = weights_hash(tokenizer)

    def split(self, name: str) -> TokenSplit:
        """Encodes the split at the first call; later calls, in any process, read the table."""
        source = self.images.split(name)
        key = fingerprint(source.fingerprint, self.tokenizer_hash)

        def rows(items: list[list[int]]) -> Iterator[dict[str, Any]]:
            for indices in items:
                yield from self._encode([source[i] for i in indices])

        folder = self.cache_dir / f"tokens-{name}-{key}"
        return TokenSplit(cached_rows(folder, rows, chunks(len(source), ENCODED_AT_ONCE), COLUMNS), key)

    def _encode(self, items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        images = torch.from_numpy(np.stack([item["image"] for item in items]))
        for item, tokens in zip(items, encode(self.tokenizer, images), strict=True):
            yield {"tokens": tokens.numpy().astype(np.uint16), "caption": item["caption"]}


def chunks(count: int, size: int) -> list[list[int]]:
    """Runs of indices. `datasets` calls a generator with one item at a time, so that a batch has to be one item."""
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


@torch.inference_mode()
def encode(tokenizer: nn.Module, images: Tensor) -> Tensor:  # uint8 [B, H, W, 3] -> [B, L]
    """In float32, so that the same image has the same tokens on every machine but for ties."""
    return tokenizer.encode(images.permute(0, 3, 1, 2).float() / 255)
