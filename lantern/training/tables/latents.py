"""Images as unquantised latents: `LatentTable(...).split("train")[i]` -> {"tokens": float32 [L, C], "caption"}. A split
is encoded once by the frozen tokenizer and cached in half precision, as token tables are."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as Column
from torch import Tensor

from lantern.data.cached_rows import cache_key, cached_batches
from lantern.data.disk_budget import Budget
from lantern.data.splits import Split, Splits
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.weights_folder import tokens_hash
from lantern.training.tables.tokens import BATCHES_PER_SHARD, CAPTION_BYTES, ENCODE_BATCH, check_size

COLUMNS = Features({"latents": Column(Value("float16")), "caption": Value("string")})


class LatentSplit(Sequence):
    """The rows of a latent table, read from its memory-mapped files at each access."""

    def __init__(self, rows: Dataset, channels: int, fingerprint: str) -> None:
        self.rows = rows.with_format("numpy", columns=["latents"], output_all_columns=True)
        self.channels, self.fingerprint = channels, fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        latents = torch.from_numpy(row["latents"].astype(np.float32)).unflatten(0, (-1, self.channels))
        return {"tokens": latents, "caption": row["caption"]}

    @property
    def captions(self) -> list[str]:
        """All captions, without reading latents."""
        return list(self.rows["caption"])


class LatentTable:
    """Latents of a data set of captioned images. LanternError rather than fill more than `budget_gib` of disk."""

    def __init__(
        self,
        images: Splits,
        tokenizer: VQTokenizer,
        cache_dir: str,
        budget_gib: float = 20.0,
        num_tokens: int | None = None,
    ) -> None:
        """num_tokens: the target's L."""
        self.images, self.tokenizer, self.cache_dir, self.budget_gib = images, tokenizer, Path(cache_dir), budget_gib
        self.num_tokens = num_tokens
        self.tokenizer_hash = tokens_hash(tokenizer)

    def split(self, name: str) -> LatentSplit:
        """Encodes the split at the first call; later calls, in any process, read the cached table. LanternError for
        images of another size than the target's."""
        source, channels = self.images.split(name), self.tokenizer.codebook.shape[1]
        key = cache_key(source.fingerprint, self.tokenizer_hash)
        height, width, _ = source[0]["image"].shape
        num_tokens = (height // self.tokenizer.downsampling) * (width // self.tokenizer.downsampling)
        check_size(height, num_tokens, self.num_tokens)
        size = len(source) * (2 * channels * num_tokens + CAPTION_BYTES)
        budget = Budget(f"latents of {len(source):,} {name} images", size, self.budget_gib, "batches.splits.budget_gib")
        folder, encode_rows = self.cache_dir / f"latents-{name}-{key}", partial(self._encode, source)
        table = cached_batches(folder, encode_rows, len(source), ENCODE_BATCH, COLUMNS, BATCHES_PER_SHARD, budget)
        return LatentSplit(table, channels, key)

    def _encode(self, source: Split, indices: list[int]) -> Iterator[dict[str, Any]]:
        items = [source[i] for i in indices]
        latents = latents_of(self.tokenizer, torch.from_numpy(np.stack([item["image"] for item in items])))
        for item, rows in zip(items, latents, strict=True):
            yield {"latents": rows.half().flatten().numpy(), "caption": item["caption"]}


@torch.inference_mode()
def latents_of(tokenizer: VQTokenizer, images: Tensor) -> Tensor:  # uint8 [B, H, W, 3] -> [B, h, w, C], on the host
    """Unit vectors, in float32."""
    images = images.to(tokenizer.codebook.device).permute(0, 3, 1, 2).float() / 255
    return tokenizer.latents(images).cpu()
