"""Images as VQ tokens: `TokenTable(...).split("train")[i]` -> {"tokens": int64 [L], "caption"}.
A split is encoded once by the frozen tokenizer and cached under a key of the images and the weights that encode."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as Column
from torch import Tensor, nn

from lantern.data.cached_rows import cache_key, cached_batches
from lantern.data.disk_budget import Budget
from lantern.data.splits import Split, Splits
from lantern.errors import LanternError
from lantern.identity import state_hash
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.weights_folder import tokens_hash
from lantern.types import Target

ENCODE_BATCH = 32
BATCHES_PER_SHARD = 8  # at most so many are encoded again after a killed run
COLUMNS = Features({"tokens": Column(Value("uint16")), "caption": Value("string")})  # of token and sample tables
MAX_CODES = 2**16  # of a uint16 column
CAPTION_BYTES = 400  # of a long caption, for estimates
MIN_DOWNSAMPLING = 8  # of all supported image tokenizers, for estimates


class TokenSplit(Sequence):
    """The rows of a token table, read from its memory-mapped files at each access."""

    def __init__(self, rows: Dataset, fingerprint: str, noise_seeds: Sequence[int] = ()) -> None:
        """noise_seeds: of each image, where the target drew them; its items then have "noise_seed"."""
        self.noise_seeds = noise_seeds
        self.rows = rows.with_format("numpy", columns=["tokens"], output_all_columns=True)
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        item = {"tokens": torch.from_numpy(row["tokens"].astype(np.int64)), "caption": row["caption"]}
        return item | {"noise_seed": self.noise_seeds[index]} if self.noise_seeds else item

    @property
    def captions(self) -> list[str]:
        """All captions, without reading tokens."""
        return list(self.rows["caption"])


class TokenTable:
    """Tokens of a data set of captioned images. Raises LanternError rather than fill more than `budget_gib` of disk."""

    def __init__(
        self,
        images: Splits,
        tokenizer: nn.Module,
        cache_dir: str,
        budget_gib: float = 20.0,
        num_tokens: int | None = None,
        setting: str = "batches.splits.budget_gib",
    ) -> None:
        """`tokenizer` has encode(images [B, 3, H, W] in [0, 1]) -> [B, L] and codebook [V, C]; num_tokens: the target's
        L; setting: the config key of the budget."""
        self.images, self.tokenizer, self.cache_dir, self.budget_gib = images, tokenizer, Path(cache_dir), budget_gib
        self.num_tokens, self.setting = num_tokens, setting
        check_codes(len(tokenizer.codebook), "tokenizer")
        hash_of = tokens_hash if isinstance(tokenizer, VQTokenizer) else state_hash  # others may name no decoder
        self.tokenizer_hash = hash_of(tokenizer)

    def split(self, name: str) -> TokenSplit:
        """Encodes the split at the first call; later calls, in any process, read the cached table."""
        source = self.images.split(name)
        key = cache_key(source.fingerprint, self.tokenizer_hash)

        height, width, _ = source[0]["image"].shape
        tokens = height * width // MIN_DOWNSAMPLING**2
        size = len(source) * (2 * tokens + CAPTION_BYTES)
        budget = Budget(f"tokens of {len(source):,} {name} images", size, self.budget_gib, self.setting)
        folder, encode_rows = self.cache_dir / f"tokens-{name}-{key}", partial(self._encode, source)
        table = cached_batches(folder, encode_rows, len(source), ENCODE_BATCH, COLUMNS, BATCHES_PER_SHARD, budget)
        check_size(height, len(table[0]["tokens"]), self.num_tokens)
        return TokenSplit(table, key)

    def _encode(self, source: Split, indices: list[int]) -> Iterator[dict[str, Any]]:
        items = [source[i] for i in indices]
        images = torch.from_numpy(np.stack([item["image"] for item in items]))
        encoded = encode(self.tokenizer, images)
        check_size(images.shape[1], encoded.shape[1], self.num_tokens)
        for item, tokens in zip(items, encoded, strict=True):
            yield {"tokens": tokens.numpy().astype(np.uint16), "caption": item["caption"]}


def check_codes(count: int, what: str) -> None:
    """Raises LanternError for more codes than a table's column holds."""
    if count > MAX_CODES:
        raise LanternError(f"the {what} has {count} codes; token tables hold {MAX_CODES}")


def check_size(pixels: int, num_tokens: int, wanted: int | None) -> None:
    """Raises LanternError if images of a side of `pixels` have another number of tokens than the target's, if known."""
    if wanted not in (None, num_tokens):
        raise LanternError(
            f"images of {pixels} pixels have {num_tokens} tokens, this target's have {wanted}; give "
            "images of one's own with data.size=<the side of the target's images>"
        )


def tokens_for(target: Target, images: Splits, cache_dir: str, budget_gib: float) -> TokenTable:
    """A TokenTable of the target's own tokenizer. LanternError if that only decodes."""
    if not hasattr(target.tokenizer, "encode"):
        raise LanternError(f"{type(target.tokenizer).__name__} decodes only; let the target draw: task=drafter_self")
    setting = "token_table.budget_gib"
    return TokenTable(images, target.tokenizer, cache_dir, budget_gib, target.num_tokens, setting)


@torch.inference_mode()
def encode(tokenizer: nn.Module, images: Tensor) -> Tensor:  # uint8 [B, H, W, 3] -> [B, L], on the host
    """In float32, so that tokens are the same on every machine, except for ties."""
    images = images.to(tokenizer.codebook.device).permute(0, 3, 1, 2).float() / 255
    return tokenizer.encode(images).cpu()
