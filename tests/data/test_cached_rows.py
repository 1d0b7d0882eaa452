"""Cached tables: finished shards are kept, damaged ones computed again, tables above their budget are an error."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from datasets import Features, Value
from filelock import FileLock
from support.paths import ROOT

from lantern.data.cached_table import Budget, EnoughError, cached_rows
from lantern.errors import LanternError

FEATURES = Features({"number": Value("int64")})


def doubled(items):
    for item in items:
        yield {"number": 2 * item}


def made(folder, count=10, make=doubled, **options):
    return list(cached_rows(folder, make, list(range(count)), FEATURES, items_per_shard=3, **options)["number"])


class Counted:
    """Records the items it computes, and fails at one."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.asked, self.fails_at = [], fails_at

    def __call__(self, items):
        for item in items:
            if item == self.fails_at:
                raise RuntimeError("power cut")
            self.asked.append(item)
            yield {"number": 2 * item}


EXPECTED = [2 * i for i in range(10)]


@pytest.mark.parametrize("num_workers", [1, 3])
def test_rows_keep_the_order_of_their_items_for_any_number_of_processes(tmp_path, num_workers):
    assert made(tmp_path / "t", num_workers=num_workers) == EXPECTED


def test_a_table_that_has_enough_holds_the_rows_before_and_is_completed_later(tmp_path):
    """Catches rows of a shard behind a gap, which would be taken for those of other items, and a shard cut in two."""

    def enough(items):
        if items[0] >= 6:
            raise EnoughError
        return doubled(items)

    assert made(tmp_path / "t", make=enough) == EXPECTED[:6]
    made(whole := tmp_path / "whole")
    (whole / "00003-of-00004").rename(tmp_path / "t" / "00003-of-00004")
    assert made(tmp_path / "t", make=enough) == EXPECTED[:6]
    with FileLock(tmp_path / "other" / "00000-of-00004.lock"), pytest.raises(LanternError, match="another process"):
        made(tmp_path / "other", make=enough)
    rest = Counted()
    assert made(tmp_path / "t", make=rest) == EXPECTED
    assert rest.asked == [6, 7, 8]


def test_an_interrupted_run_continues_after_its_last_whole_shard(tmp_path):
    with pytest.raises(RuntimeError):
        made(tmp_path / "t", make=Counted(fails_at=7))
    second = Counted()
    assert made(tmp_path / "t", make=second) == EXPECTED
    assert second.asked == [6, 7, 8, 9]
    third = Counted()
    assert made(tmp_path / "t", make=third) == EXPECTED
    assert third.asked == []


def test_an_interrupted_run_may_continue_in_batches_of_another_size(tmp_path):
    """Catches finished shards that are computed again, and batches that reach into the next shard."""
    with pytest.raises(RuntimeError):
        made(tmp_path / "t", make=Counted(fails_at=7), batch_size=2)
    sizes = []

    def counted(items):
        sizes.append(len(items))
        return doubled(items)

    assert made(tmp_path / "t", make=counted, batch_size=4) == EXPECTED
    assert sizes == [3, 1]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: b""])
@pytest.mark.parametrize("name", ["*.arrow", "state.json"])
def test_only_a_damaged_shard_is_computed_again(tmp_path, name, damage, caplog):
    """Truncated, one bit flipped, emptied: a size check alone would miss the second."""
    made(tmp_path / "t")
    damaged = next((tmp_path / "t" / "00001-of-00004").glob(name))
    damaged.write_bytes(damage(damaged.read_bytes()))
    again = Counted()
    assert made(tmp_path / "t", make=again) == EXPECTED
    assert again.asked == [3, 4, 5]
    assert "00001-of-00004 damaged" in caplog.text


def test_shards_of_a_helper_that_fails_are_computed_by_the_caller(tmp_path):
    parent = os.getpid()

    def deadly(items):
        if os.getpid() != parent:
            os._exit(9)
        yield from doubled(items)

    assert made(tmp_path / "t", make=deadly, num_workers=3) == EXPECTED


def test_a_table_above_its_budget_or_larger_than_the_disk_is_an_error_before_anything_is_computed(tmp_path):
    budget = Budget("tokens of 10 images", 3 * 2**30, 2, "token_table.budget_gib")
    with pytest.raises(LanternError, match=r"take up to 3 GiB, token_table\.budget_gib=2; raise it or give fewer"):
        made(tmp_path / "t", make=Counted(fails_at=0), budget=budget)
    made(tmp_path / "t")
    assert made(tmp_path / "t", budget=budget) == EXPECTED  # nothing is to be written
    with pytest.raises(LanternError, match="make room"):
        made(tmp_path / "other", budget=Budget("features", 2**60, 2**40, "key"))
    (tmp_path / "file").touch()
    with pytest.raises(LanternError, match=r"paths\.cache_dir"):
        made(tmp_path / "file" / "t")


SLOWLY = """
import sys, time
from pathlib import Path
from datasets import Features, Value
from lantern.data.cached_table import cached_rows
def rows(items):
    for item in items:
        time.sleep(0.1)
        yield {"number": 2 * item}
cached_rows(Path(sys.argv[1]), rows, list(range(10)), Features({"number": Value("int64")}), items_per_shard=1)
"""


def shards_in(folder: Path) -> int:
    return len([path for path in folder.glob("0*-of-00010") if path.is_dir()])


@pytest.mark.full
@pytest.mark.parametrize("seconds", [0.03, 0.4])
def test_a_killed_process_leaves_whole_shards_only(tmp_path, seconds):
    """kill -9 while shards are written; the next run computes only the missing items."""
    folder = tmp_path / "t"
    process = subprocess.Popen([sys.executable, "-c", SLOWLY, str(folder)], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not shards_in(folder) and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = shards_in(folder)
    again = Counted()
    rows = cached_rows(folder, again, list(range(10)), FEATURES, items_per_shard=1)
    assert list(rows["number"]) == EXPECTED
    assert len(again.asked) == 10 - whole
    assert 0 < whole < 10
