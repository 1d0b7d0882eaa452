"""Tables that are computed once and then memory mapped: HF `datasets` on disk, in shards. A killed run loses only the
shard in progress; several processes and machines can fill one folder together."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import takewhile
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from datasets import Dataset, Features, concatenate_datasets, disable_progress_bars, load_from_disk
from filelock import FileLock, Timeout

from lantern.errors import LanternError
from lantern.identity import files_hash
from lantern.runtime.progress_line import ProgressLine

MakeRows = Callable[[Sequence], Iterator[dict[str, Any]]]
CHECKSUMS = "shard.json"
GIB = 2**30
disable_progress_bars()  # those of `datasets`, one per shard; _fill shows one for all rows
log = logging.getLogger(__name__)


class EnoughError(Exception):
    """Raised to stop early: the table keeps the rows made so far."""


class TimeShare:
    """Keeps a table to a time: no shard is begun that would end behind it, nor any by a later start, which trains."""

    def __init__(self, limit_s: float, least: int) -> None:
        """limit_s: from the first batch on, inf without a limit; least: rows that are always made."""
        self.limit_s, self.least = limit_s, least
        self._began, self._first = -inf, 0  # when, and behind how many rows that were there

    def check(self, done: int, shard: int) -> None:
        """Called before each batch of a shard of so many rows. EnoughError if one behind `done` rows would end late."""
        is_first, now = self._began < 0, monotonic()
        if is_first:
            self._began, self._first = now, done
        shard_s = inf if is_first else (now - self._began) * shard / max(1, done - self._first)
        if self.limit_s < inf and done >= self.least and done % shard == 0 and self.left_s < shard_s:
            raise EnoughError

    @property
    def left_s(self) -> float:
        return max(0.0, min(self.limit_s, self._began + self.limit_s - monotonic() if self._began >= 0 else inf))


class Budget(NamedTuple):
    """An upper estimate of a table's size, and its limit."""

    what: str  # "tokens of 1,000 train images"
    num_bytes: int
    limit_gib: float

    def check(self, folder: Path, share: float) -> None:
        needed, free = share * self.num_bytes / GIB, shutil.disk_usage(folder).free / GIB
        told = f"{self.what} take up to {needed:.3g} GiB"
        if needed > self.limit_gib:
            raise LanternError(f"{told}, their budget_gib is {self.limit_gib}; raise it or give fewer")
        if needed > free:
            raise LanternError(f"{told}, {folder} has {free:.3g} GiB; make room, give fewer or another paths.cache_dir")


def cached_rows(
    folder: Path, make_rows: MakeRows, items: Sequence, features: Features, items_per_shard: int = 512,
    batch_size: int | None = None, budget: Budget | None = None, limit: TimeShare | None = None,
) -> Dataset:  # fmt: skip
    """The rows that `make_rows(items)` yields for each shard, or for batches of it, read from `folder`. A shard is
    created by one rename; its checksums are checked before use. With a limit, items are their numbers."""

    def make_shard(part: Sequence) -> Iterator[dict[str, Any]]:
        size = batch_size or len(part)
        for start in range(0, len(part), size):
            if limit:
                limit.check(part[start], items_per_shard)
            yield from make_rows(part[start : start + size])

    folder, starts = folder.expanduser(), range(0, len(items), items_per_shard)
    parts = [items[start : start + items_per_shard] for start in starts]
    shards = {folder / f"{number:05d}-of-{len(parts):05d}": part for number, part in enumerate(parts)}
    places = list(shards)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = {place: part for place, part in shards.items() if not is_complete(place)}
        if damaged := [place.name for place in missing if place.exists()]:
            log.warning("%s: %s damaged, computed again", folder, ", ".join(damaged))
        if missing:
            if budget is not None:
                budget.check(folder, sum(map(len, missing.values())) / len(items))
            _fill(missing, make_shard, features, limit)
    except EnoughError:
        places = list(takewhile(is_complete, shards))
        if not places:
            raise LanternError(f"another process makes the first rows of {folder}; start again behind it") from None
    except OSError as error:
        remedy = "name a folder you may write to with paths.cache_dir=..."
        raise LanternError(f"cannot write {folder} ({error}); {remedy}") from error
    return concatenate_datasets([load_from_disk(str(place)) for place in places])


def _fill(shards: dict[Path, Sequence], make_rows: MakeRows, features: Features, limit: TimeShare | None) -> None:
    """Computes every shard that no other process has locked, then waits for the locked ones."""
    total, made, spent_s, started = sum(map(len, shards.values())), 0, 0.0, monotonic()

    def counted(items: Sequence) -> Iterator[dict[str, Any]]:
        nonlocal made, spent_s
        for row in make_rows(items):
            yield row
            left_s = spent_s / made * max(0, total - made) if made else inf  # the first of a batch has waited for all
            made, spent_s = made + 1, monotonic() - started
            within = limit.left_s if limit else inf
            words = f"{made:,} of {total:,}" + (", as many as fit" if within < left_s < inf else "")
            line.show(min(1.0, made / total), words, left if (left := min(left_s, within)) < inf else None)

    with closing(ProgressLine(f"making {next(iter(shards)).parent.name.rpartition('-')[0]}")) as line:
        line.show(0.0, f"0 of {total:,}", None)
        waiting, passed = dict(shards), 0
        for wait_s in (0, -1):  # without an end
            for place, items in list(waiting.items()):
                with suppress(Timeout), FileLock(f"{place}.lock", timeout=wait_s):
                    if not is_complete(place):
                        _make(place, counted(items), features)
                    del waiting[place]
                made = passed = min(total, passed + len(items))  # those of other processes, too


def _make(place: Path, made: Iterator[dict[str, Any]], features: Features) -> None:
    unfinished = place.with_name(f".{place.name}.unfinished")
    for left_over in (unfinished, place):
        shutil.rmtree(left_over, ignore_errors=True)
    rows = list(made)
    columns = {name: [row[name] for row in rows] for name in features}
    Dataset.from_dict(columns, features=features).save_to_disk(str(unfinished), num_shards=1)
    checksums = {file.name: checksum(file) for file in sorted(unfinished.iterdir())}
    (unfinished / CHECKSUMS).write_text(json.dumps({"rows": len(rows), "files": checksums}))
    unfinished.rename(place)


def is_complete(folder: Path) -> bool:
    """Whether a shard exists and its files match their checksums."""
    try:
        record = json.loads((folder / CHECKSUMS).read_text())
        return all(checksum(folder / name) == known for name, known in record["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no checksums, or a foreign file
        return False


def checksum(file: Path) -> list:
    return [file.stat().st_size, files_hash([file])]
