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
from lantern.data.disk_budget import Budget
from lantern.data.splits import Splits
from lantern.errors import LanternError
from lantern.models.checkpoints import state_hash
from lantern.types import Target

ENCODED_AT_ONCE = 32
BATCHES_PER_SHARD = 8  # what a killed run has to encode again
COLUMNS = Features({"tokens": Column(Value("uint16")), "caption": Value("string")})  # of every table of tokens
CODES = 2**16  # that a token column holds
CAPTION_BYTES = 400  # of a long one, for estimates
LEAST_DOWNSAMPLING = 8  # of the image tokenizers there are, for estimates


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
    """Any captioned images through a frozen tokenizer. Refuses to fill more than `budget_gib` of disk."""

    def __init__(
        self,
        images: Splits,
        tokenizer: nn.Module,
        cache_dir: str,
        budget_gib: float = 20.0,
        num_tokens: int | None = None,
    ) -> None:
        """`tokenizer` has encode(images [B, 3, H, W] in [0, 1]) -> [B, L] and codebook [V, C]; num_tokens: L as the
        target wants it."""
        self.images, self.tokenizer, self.cache_dir, self.budget_gib = images, tokenizer, Path(cache_dir), budget_gib
        self.num_tokens = num_tokens
        if len(tokenizer.codebook) > CODES:
            raise LanternError(f"the tokenizer has {len(tokenizer.codebook)} codes; token tables hold up to {CODES}")
        self.tokenizer_hash = state_hash(tokenizer)

    def split(self, name: str) -> TokenSplit:
        """Encodes the split at the first call; later calls, in any process, read the table."""
        source = self.images.split(name)
        key = fingerprint(source.fingerprint, self.tokenizer_hash)

        def rows(items: list[list[int]]) -> Iterator[dict[str, Any]]:
            for indices in items:
                yield from self._encode([source[i] for i in indices])

        height, width, _ = source[0]["image"].shape
        tokens = height * width // LEAST_DOWNSAMPLING**2
        size = len(source) * (2 * tokens + CAPTION_BYTES)
        budget = Budget(f"tokens of {len(source):,} {name} images", size, self.budget_gib, "token_table.budget_gib")
        table = cached_rows(
            self.cache_dir / f"tokens-{name}-{key}", rows, chunks(len(source), ENCODED_AT_ONCE), COLUMNS,
            items_per_shard=BATCHES_PER_SHARD, budget=budget,
        )  # fmt: skip
        return TokenSplit(table, key)

    def _encode(self, items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        images = torch.from_numpy(np.stack([item["image"] for item in items]))
        encoded = encode(self.tokenizer, images)
        if self.num_tokens not in (None, encoded.shape[1]):
            raise LanternError(
                f"images of {images.shape[1]} pixels have {encoded.shape[1]} tokens, this target's have "
                f"{self.num_tokens}; give images of one's own with data.size=<the side of the target's images>"
            )
        for item, tokens in zip(items, encoded, strict=True):
            yield {"tokens": tokens.numpy().astype(np.uint16), "caption": item["caption"]}


def tokens_for(target: Target, images: Splits, cache_dir: str, budget_gib: float) -> TokenTable:
    """Images through the target's own tokenizer. LanternError where it only decodes."""
    if not hasattr(target.tokenizer, "encode"):
        raise LanternError(f"{type(target.tokenizer).__name__} decodes only; let the target draw: task=drafter_self")
    return TokenTable(images, target.tokenizer, cache_dir, budget_gib, target.num_tokens)


def chunks(count: int, size: int) -> list[list[int]]:
    """Runs of indices, each to be computed at once."""
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


@torch.inference_mode()
def encode(tokenizer: nn.Module, images: Tensor) -> Tensor:  # uint8 [B, H, W, 3] -> [B, L], on the host
    """In float32, so that the same image has the same tokens on every machine but for ties."""
    images = images.to(tokenizer.codebook.device).permute(0, 3, 1, 2).float() / 255
    return tokenizer.encode(images).cpu()
