"""The frozen target's features, computed once: `FeatureTable(...).split("train")[i]` -> {"tokens", "caption",
"features" [R, P + L - 1, F]}. Worth the disk space where one target is distilled many times; else features are computed
on the fly."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lantern.data.cached_rows import cache_key, checksum
from lantern.data.disk_budget import Budget
from lantern.data.splits import Split, Splits
from lantern.errors import LanternError
from lantern.identity import reading_hash, target_hashes
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.runtime.files import replace_locked, replace_text
from lantern.runtime.memory import available_memory
from lantern.training.recipe import Layers
from lantern.training.teacher_forcing import target_features

FEATURE_BATCH = 16
log = logging.getLogger(__name__)


class FeatureSplit(Sequence):
    """Items of a token split, with features read from disk at each access."""

    def __init__(self, items: Split, path: Path, fingerprint: str) -> None:
        self.items, self.path, self.fingerprint = items, path, fingerprint
        self._features = safe_open(path, "pt").get_slice("features")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index] | {"features": self._features[index : index + 1][0]}

    @property
    def captions(self) -> list[str]:
        """All captions, without reading features."""
        return self.items.captions


class FeatureTable:
    """Features of a data set of tokens, in the target's dtype, checked against their checksum before use. Raises
    LanternError rather than fill more than `budget_gib`."""

    def __init__(
        self, tokens: Splits, target: LlamaGenTarget, cache_dir: str, budget_gib: float, layers: Layers | None = None
    ) -> None:
        """layers: of the target whose inputs are stored behind its features, as Recipe.layers."""
        self.tokens, self.target, self.budget_gib = tokens, target, budget_gib
        self.cache_dir = Path(cache_dir).expanduser()
        self.layers = layers(target.num_layers) if layers else ()

    def split(self, name: str) -> FeatureSplit:
        """Computes the features of the split at the first call; later calls read them."""
        items = self.tokens.split(name)
        target, dtype = self.target, str(self.target.embed_weight.dtype)
        reads = reading_hash(target, items[0]["caption"])
        key = cache_key(items.fingerprint, *target_hashes(target), reads, target.guidance, dtype, *self.layers)
        path = self.cache_dir / f"features-{name}-{key}.safetensors"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                if not _matches_checksum(path):
                    budget = self._budget(name, len(items))
                    budget.check(path.parent)
                    _check_room(budget)
                    replace_locked(path, lambda file: save_file({"features": self._compute(items)}, file))
                    replace_text(_record(path), json.dumps(checksum(path)))
        except (OSError, SafetensorError) as error:
            remedy = "make room, or give another paths.cache_dir=…"
            raise LanternError(f"cannot keep features in {path.parent} ({error}); {remedy}") from error
        return FeatureSplit(items, path, key)

    def _budget(self, name: str, count: int) -> Budget:
        weight, what = self.target.embed_weight, f"features of {count:,} {name} images"
        rows = self.target.guidance * (self.target.prefix_len + self.target.num_tokens - 1)
        size = count * rows * (1 + len(self.layers)) * weight.shape[1] * weight.element_size()
        remedy = "raise it, give fewer, or features=on_the_fly"
        return Budget(what, size, self.budget_gib, "feature_table.budget_gib", remedy)

    def _compute(self, items: Split) -> Tensor:  # -> [n, R, P + L - 1, F]
        table = torch.empty(0)
        for start in range(0, len(items), FEATURE_BATCH):
            chosen = [items[i] for i in range(start, min(start + FEATURE_BATCH, len(items)))]
            tokens = torch.stack([item["tokens"] for item in chosen]).to(self.target.codebook.device)
            captions = [item["caption"] for item in chosen]
            made = target_features(self.target, tokens, captions, self.layers).cpu()
            if not start:
                table = made.new_empty(len(items), *made.shape[1:])  # once: joining parts would take as much again
            table[start : start + len(made)] = made
        return table


def _check_room(budget: Budget) -> None:
    """Raises LanternError for a table that main memory, where it is made, does not hold."""
    free = available_memory(torch.device("cpu"))
    if free is not None and budget.num_bytes > free:
        raise LanternError(
            f"{budget.what} take {budget.num_bytes / 2**30:.3g} GiB of memory while they are made and "
            f"{free / 2**30:.3g} GiB are free; give fewer, or features=on_the_fly"
        )


def _record(path: Path) -> Path:
    """The file with a table's checksum."""
    return path.with_suffix(".json")


def _matches_checksum(path: Path) -> bool:
    """Whether a table exists and matches its checksum."""
    if not path.is_file():
        return False
    try:
        if json.loads(_record(path).read_text()) == checksum(path):
            return True
    except (FileNotFoundError, ValueError):  # the process that wrote the table was ended before it wrote this
        pass
    log.warning("%s is damaged, computed again", path)
    return False
