"""Rows made once and then memory mapped: HF `datasets` on disk, under a key of everything they depend on."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, load_from_disk
from filelock import FileLock

from lantern.errors import LanternError

MakeRows = Callable[[list], Iterator[dict[str, Any]]]


def fingerprint(*facts: Any) -> str:
    """Sixteen hexadecimal digits of a hash of JSON-like facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def cached_rows(folder: Path, make_rows: MakeRows, items: list, features: Features, num_workers: int = 1) -> Dataset:
    """The rows `make_rows(items)` yields, from `folder` if it is there, else made by `num_workers` processes.

    The folder appears by one rename, so that it is whole or absent; what an interrupted call left is removed.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                _build(folder, make_rows, items, features, min(num_workers, len(items)))
    except OSError as error:
        remedy = "name a folder you may write to with data.cache_dir=..."
        raise LanternError(f"cannot write {folder} ({error}); {remedy}") from error
    return load_from_disk(str(folder))


def _build(folder: Path, make_rows: MakeRows, items: list, features: Features, num_workers: int) -> None:
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    rows = Dataset.from_generator(
        make_rows,
        features=features,
        cache_dir=str(unfinished / "work"),
        gen_kwargs={"items": items},
        num_proc=num_workers if num_workers > 1 else None,
        fingerprint=folder.name.rpartition("-")[2],  # else `datasets` would pickle make_rows, models and all
    )
    rows.save_to_disk(str(unfinished / "rows"))
    (unfinished / "rows").rename(folder)
    shutil.rmtree(unfinished)
