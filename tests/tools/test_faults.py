"""The study of faults: its short form recovers from faults of several kinds, and it sees what goes wrong."""

import json

import pytest
from support.commands import python

from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import append_rows
from tools.faults.__main__ import ROWS, is_good
from tools.faults.kinds import KINDS
from tools.faults.work import finished_work, made_twice

SAVED = "kill -9 behind a checkpoint"


@pytest.mark.full
def test_faults_of_three_kinds_leave_the_results_of_an_undisturbed_run(tmp_path):
    """Catches any of them that changes tokens, weights or figures, or makes finished work again; `make faults` has all
    kinds, on all jobs."""
    python("-m", "tools.faults", str(tmp_path), "--count=3", "--seed=1")
    rows = [json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines()]
    assert len({row["kind"] for row in rows}) == 3
    assert all(row["recovered"] and row["equal"] and row["made_twice"] == [] for row in rows)
    assert all(any(row["statuses"]) for row in rows if not KINDS[row["kind"]].is_survived)
    assert sum(row["finished_before"] for row in rows) > 0
    assert all(row["finished_before"] for row in rows if row["kind"] == SAVED)


def record(key: str, number: int, copy: int = 0, **values: object) -> dict:
    line = {"key": key, "part": "images", "prompt": f"p{number}", "copy": copy, "image": f"images/{number:05d}-p.png"}
    return line | {"method": "m", "tokens": f"t{number}", "steps": 3} | values


def test_an_image_made_again_is_seen_and_a_copied_line_is_not(tmp_path):
    """Catches a count of lines: shards' lines are copied into the folder of the run that measures them."""
    append_rows(tmp_path / "run" / "0" / RECORDS, [record("k", number, draft_ms=1.5) for number in range(4)])
    before = finished_work(tmp_path, shards=1, group_size=4)
    assert len(before) == 4
    copied = record("k", 0, draft_ms=1.5) | {"image": "../elsewhere/00000-p.png"}
    append_rows(tmp_path / "run" / RECORDS, [copied])
    assert made_twice(before, finished_work(tmp_path, 1, 4)) == []
    append_rows(tmp_path / "run" / RECORDS, [record("k", 1, draft_ms=1.6)])
    assert made_twice(before, finished_work(tmp_path, 1, 4)) == ["images k p1 0 0"]


def test_a_hang_is_no_recovery_and_a_fault_to_be_survived_ends_nothing():
    """Catches a process that is killed after its time and started again, counted as one that went on."""
    survived = next(name for name, kind in KINDS.items() if kind.is_survived)
    ended = next(name for name, kind in KINDS.items() if not kind.is_survived)
    row = {"recovered": True, "equal": True, "made_twice": [], "hung": False, "statuses": [0, -9]}
    assert is_good(row | {"kind": ended})
    assert not is_good(row | {"kind": ended, "hung": True})
    assert not is_good(row | {"kind": survived})
    assert is_good(row | {"kind": survived, "statuses": [0]})
