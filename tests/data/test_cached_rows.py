"""Cached tables: finished shards are kept, damaged ones computed again, tables above their budget are an error."""

import pytest
from datasets import Features, Value
from filelock import FileLock

from lantern.data import cached_table
from lantern.data.cached_table import Budget, EnoughError, cached_rows
from lantern.errors import LanternError
from lantern.runtime.progress_line import ProgressLine

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


def test_the_time_left_counts_whole_batches(tmp_path, monkeypatch):
    """Catches hours at the first row, which has waited for all of its batch, and too many minutes at that of each."""
    now, told = [0.0], []

    def slow(items):
        now[0] += 30
        return doubled(items)

    monkeypatch.setattr(cached_table, "monotonic", lambda: now[0])
    monkeypatch.setattr(ProgressLine, "show", lambda line, share, words, left_s: told.append(left_s))
    made(tmp_path / "t", 9, slow)
    assert told[1::3] == [None, 60, 30]


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


def test_a_table_above_its_budget_or_larger_than_the_disk_is_an_error_before_anything_is_computed(tmp_path):
    budget = Budget("tokens of 10 images", 3 * 2**30, 2)
    with pytest.raises(LanternError, match="take up to 3 GiB, their budget_gib is 2; raise it or give fewer"):
        made(tmp_path / "t", make=Counted(fails_at=0), budget=budget)
    made(tmp_path / "t")
    assert made(tmp_path / "t", budget=budget) == EXPECTED  # nothing is to be written
    with pytest.raises(LanternError, match="make room"):
        made(tmp_path / "other", budget=Budget("features", 2**60, 2**40))
    (tmp_path / "file").touch()
    with pytest.raises(LanternError, match=r"paths\.cache_dir"):
        made(tmp_path / "file" / "t")
