"""Tables that are computed once and then memory mapped: HF `datasets` on disk, in shards. A killed run loses only the
shard in progress; several processes and machines can fill one folder together."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import takewhile
from math import inf
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from datasets import Dataset, Features, concatenate_datasets, disable_progress_bars, load_from_disk
from filelock import FileLock, Timeout

from lantern.errors import LanternError
from lantern.identity import digest, files_hash
from lantern.runtime.progress_line import ProgressLine

MakeRows = Callable[[Sequence], Iterator[dict[str, Any]]]
CHECKSUMS = "shard.json"
GIB = 2**30
REPORTED_FROM = 2**26  # bytes
disable_progress_bars()  # those of `datasets`, one per shard; _fill shows one for all rows
log = logging.getLogger(__name__)


class EnoughError(Exception):
    """Raised to stop early: the table keeps the rows made so far."""


class TimeShare:
    """Keeps a table to a time: behind it no new shard is begun, nor by a later start, whose time is for steps."""

    def __init__(self, shard: int, least: int, limit_s: float) -> None:
        """shard: its rows; least: rows that are always made; limit_s: from the first batch on, inf without a limit."""
        self.shard, self.least, self.limit_s = shard, least, limit_s
        self._began: float | None = None  # at the first check

    def check(self, done: int) -> None:
        """Called before every batch. done: rows before it. Raises EnoughError if the time is used up."""
        is_used_up = self._began is None or not self.left_s
        self._began = monotonic() if self._began is None else self._began
        if self.limit_s < inf and done >= self.least and done % self.shard == 0 and is_used_up:
            raise EnoughError

    @property
    def left_s(self) -> float:
        return self.limit_s if self._began is None else max(0.0, self._began + self.limit_s - monotonic())


class Budget(NamedTuple):
    """An upper estimate of a table's size, and its limit."""

    what: str  # "tokens of 1,000 train images"
    num_bytes: int
    limit_gib: float
    key: str  # the config key of the limit
    remedy: str = "raise it or give fewer"  # where the table is above it

    def check(self, folder: Path, share: float = 1.0) -> None:
        needed, free = share * self.num_bytes / GIB, shutil.disk_usage(folder).free / GIB
        if needed > self.limit_gib:
            raise LanternError(f"{self.what} take up to {needed:.3g} GiB, {self.key}={self.limit_gib}; {self.remedy}")
        if needed > free:
            raise LanternError(
                f"{self.what} take up to {needed:.3g} GiB, {folder} has {free:.3g} GiB left; "
                "make room, give fewer, or choose another disk with paths.cache_dir=…"
            )
        if share * self.num_bytes > REPORTED_FROM:
            log.info("%s take up to %.3g GiB in %s, which has %.3g GiB left", self.what, needed, folder, free)


class Shard(NamedTuple):
    """Consecutive items and the folder for the rows computed from them."""

    folder: Path
    items: Sequence


def cache_key(*inputs: Any) -> str:
    """The id of JSON-like values: all that the cached rows depend on."""
    return digest(inputs)


def cached_rows(
    folder: Path, make_rows: MakeRows, items: Sequence, features: Features, num_workers: int = 1,
    items_per_shard: int = 512, batch_size: int | None = None, budget: Budget | None = None,
    limit: TimeShare | None = None,
) -> Dataset:  # fmt: skip
    """The rows that `make_rows(items)` yields for each shard, or for batches of it, read from `folder`. num_workers
    compute missing or damaged shards. A shard is created by one rename; its checksums are checked before use. With a
    limit, items are their numbers."""

    def make_shard(part: Sequence) -> Iterator[dict[str, Any]]:
        size = batch_size or len(part)
        for start in range(0, len(part), size):
            if limit:
                limit.check(part[start])
            yield from make_rows(part[start : start + size])

    folder, starts = folder.expanduser(), range(0, len(items), items_per_shard)
    names = [f"{number:05d}-of-{len(starts):05d}" for number in range(len(starts))]
    shards = [Shard(folder / n, items[s : s + items_per_shard]) for n, s in zip(names, starts, strict=True)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [shard for shard in shards if not is_complete(shard.folder)]
        if damaged := [shard.folder.name for shard in missing if shard.folder.exists()]:
            log.warning("%s: %s damaged, computed again", folder, ", ".join(damaged))
        if missing:
            if budget is not None:
                budget.check(folder, sum(len(shard.items) for shard in missing) / len(items))
            _fill_together(missing, make_shard, features, min(num_workers, len(missing)), limit)
    except EnoughError:
        shards = list(takewhile(lambda shard: is_complete(shard.folder), shards))
        if not shards:
            raise LanternError(f"another process makes the first rows of {folder}; start again behind it") from None
    except OSError as error:
        remedy = "name a folder you may write to with paths.cache_dir=..."
        raise LanternError(f"cannot write {folder} ({error}); {remedy}") from error
    return concatenate_datasets([load_from_disk(str(shard.folder)) for shard in shards])


def _fill_together(
    shards: list[Shard], make_rows: MakeRows, features: Features, num_workers: int, limit: TimeShare | None
) -> None:
    """Runs _fill in this process and num_workers - 1 helpers; shards that a failed helper left are computed here."""
    helpers = [
        get_context("fork").Process(target=_fill_as_helper, args=(shards, make_rows, features), daemon=True)
        for _ in range(num_workers - 1)
    ]
    for helper in helpers:
        helper.start()
    _fill(shards, make_rows, features, limit)
    for helper in helpers:
        helper.join()


def _fill_as_helper(shards: list[Shard], make_rows: MakeRows, features: Features) -> None:
    with suppress(Exception):  # the main process meets the same error and reports it
        _fill(shards, make_rows, features, is_helper=True)


def _fill(
    shards: list[Shard],
    make_rows: MakeRows,
    features: Features,
    limit: TimeShare | None = None,
    is_helper: bool = False,
) -> None:
    """Computes every shard that no other process has locked, then waits for the locked ones."""
    total, made, started = sum(len(shard.items) for shard in shards), 0, monotonic()

    def counted(items: Sequence) -> Iterator[dict[str, Any]]:
        nonlocal made
        for row in make_rows(items):
            yield row
            made += 1
            if not is_helper:
                left_s = (monotonic() - started) / made * max(0, total - made)
                within = limit.left_s if limit else inf
                words = f"{made:,} of {total:,}" + (", as many as fit" if within < left_s else "")
                line.show(min(1.0, made / total), words, min(left_s, within))

    with closing(ProgressLine(f"making {shards[0].folder.parent.name.rpartition('-')[0]}")) as line:
        if not is_helper:
            line.show(0.0, f"0 of {total:,}", None)
        passed, locked = 0, []
        for shard in shards:
            if not _claim(shard, counted, features, wait=False):
                locked.append(shard)
            made = passed = passed + len(shard.items)  # those of other processes, too
        if not is_helper:
            for shard in locked:
                _claim(shard, counted, features, wait=True)


def _claim(shard: Shard, make_rows: MakeRows, features: Features, wait: bool) -> bool:
    """Computes the shard under its lock, unless it is complete. False if the lock is taken and `wait` is false."""
    try:
        with FileLock(f"{shard.folder}.lock", timeout=-1 if wait else 0):
            if not is_complete(shard.folder):
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
    checksums = {file.name: checksum(file) for file in sorted(unfinished.iterdir())}
    (unfinished / CHECKSUMS).write_text(json.dumps({"rows": len(rows), "files": checksums}))
    unfinished.rename(shard.folder)


def is_complete(folder: Path) -> bool:
    """Whether a shard exists and its files match their checksums."""
    try:
        record = json.loads((folder / CHECKSUMS).read_text())
        return all(checksum(folder / name) == known for name, known in record["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no checksums, or a foreign file
        return False


def checksum(file: Path) -> list:
    return [file.stat().st_size, files_hash([file])]
