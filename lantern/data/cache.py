"""Rows made once and then memory mapped: HF `datasets` on disk, shard by shard, under a key of all they depend on.
A killed run loses the shard it was writing; several processes and machines fill one folder together."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, Features, concatenate_datasets, disable_progress_bars, load_from_disk
from filelock import FileLock, Timeout
from tqdm import tqdm

from lantern.data.disk_budget import Budget
from lantern.errors import LanternError
from lantern.types import Target

MakeRows = Callable[[list], Iterator[dict[str, Any]]]
RECORD = "shard.json"
disable_progress_bars()  # of `datasets`, one a shard; the shards have their own
log = logging.getLogger(__name__)


class Shard(NamedTuple):
    """A run of items and the folder of the rows made of them."""

    folder: Path
    items: list


def fingerprint(*facts: Any) -> str:
    """Sixteen hexadecimal digits of a hash of JSON-like facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def hashes_of(target: Target) -> tuple[str, str | None]:
    """Of a target's weights, and of its text encoder's where that has weights of its own."""
    return target.weights_hash, getattr(getattr(target, "conditioner", None), "weights_hash", None)


def cached_rows(
    folder: Path,
    make_rows: MakeRows,
    items: list,
    features: Features,
    num_workers: int = 1,
    items_per_shard: int = 512,
    budget: Budget | None = None,
) -> Dataset:
    """The rows `make_rows(items)` yields, from `folder` where they are there and whole, else made by num_workers.

    Each shard appears by one rename and is checked against its hashes before it is used; a damaged one is made again.
    """
    starts = range(0, len(items), items_per_shard)
    names = [f"{number:05d}-of-{len(starts):05d}" for number in range(len(starts))]
    shards = [Shard(folder / n, items[s : s + items_per_shard]) for n, s in zip(names, starts, strict=True)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [shard for shard in shards if not is_whole(shard.folder)]
        if damaged := [shard.folder.name for shard in missing if shard.folder.exists()]:
            log.warning("%s: %s damaged, made again", folder, ", ".join(damaged))
        if missing:
            if budget is not None:
                budget.check(folder, sum(len(shard.items) for shard in missing) / len(items))
            _fill_together(missing, make_rows, features, min(num_workers, len(missing)))
    except OSError as error:
        remedy = "name a folder you may write to with paths.cache_dir=..."
        raise LanternError(f"cannot write {folder} ({error}); {remedy}") from error
    return concatenate_datasets([load_from_disk(str(shard.folder)) for shard in shards])


def _fill_together(shards: list[Shard], make_rows: MakeRows, features: Features, num_workers: int) -> None:
    """This process and num_workers - 1 helpers. What a helper leaves undone, for whatever reason, is done here."""
    helpers = [
        get_context("fork").Process(target=_help, args=(shards, make_rows, features), daemon=True)
        for _ in range(num_workers - 1)
    ]
    for helper in helpers:
        helper.start()
    _fill(shards, make_rows, features)
    for helper in helpers:
        helper.join()


def _help(shards: list[Shard], make_rows: MakeRows, features: Features) -> None:
    with suppress(Exception):  # the process that was asked for the rows meets it again, and reports it
        _fill(shards, make_rows, features, is_helper=True)


def _fill(shards: list[Shard], make_rows: MakeRows, features: Features, is_helper: bool = False) -> None:
    """Makes every shard that nobody else is at, then waits for the others."""
    with tqdm(shards, desc=shards[0].folder.parent.name, unit="shard", disable=is_helper or len(shards) == 1) as bar:
        others = [shard for shard in bar if not _claim(shard, make_rows, features, wait=False)]
    if not is_helper:
        for shard in others:
            _claim(shard, make_rows, features, wait=True)


def _claim(shard: Shard, make_rows: MakeRows, features: Features, wait: bool) -> bool:
    """Makes the shard unless it is whole. False where another process is making it and this one does not wait."""
    try:
        with FileLock(f"{shard.folder}.lock", timeout=-1 if wait else 0):
            if not is_whole(shard.folder):
                _make(shard, make_rows, features)
    except Timeout:
        return False
    return True


def _make(shard: Shard, make_rows: MakeRows, features: Features) -> None:
    unfinished = shard.folder.with_name(f".{shard.folder.name}.unfinished")
    for left_over in (unfinished, shard.folder):
        shutil.rmtree(left_over, ignore_errors=True)
    rows = list(make_rows(shard.items))
    columns = {name: [row[name] for row in rows] for name in features}
    Dataset.from_dict(columns, features=features).save_to_disk(str(unfinished), num_shards=1)
    record = {file.name: _identity(file) for file in sorted(unfinished.glob("*.arrow"))}
    (unfinished / RECORD).write_text(json.dumps({"rows": len(rows), "files": record}))
    unfinished.rename(shard.folder)


def is_whole(folder: Path) -> bool:
    """Whether a shard is there and its files are the ones that were written."""
    try:
        record = json.loads((folder / RECORD).read_text())
        return all(_identity(folder / name) == identity for name, identity in record["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no record, or not one of ours
        return False


def _identity(file: Path) -> list:
    """Size and SHA-256."""
    with file.open("rb") as opened:
        return [file.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()]
