"""The study of faults: its short form recovers from one fault of each kind, and it sees what goes wrong."""

import json
import signal
import subprocess
import sys
from random import Random

import pytest
from support.paths import ROOT

from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import append_rows
from tools.faults.__main__ import ROWS, Study, is_good
from tools.faults.jobs import Running, children, log_of, marked_processes, send
from tools.faults.kinds import KINDS, Scene, flip_bytes, set_times_ahead, tear_record
from tools.faults.work import finished_work, made_twice, results

TORN = "checkpoint cut short"


@pytest.mark.full
def test_one_fault_of_each_kind_leaves_the_results_of_an_undisturbed_run(tmp_path):
    """Catches any of them that changes tokens, weights or figures, or makes finished work again."""
    command = [sys.executable, "-m", "tools.faults", str(tmp_path), f"--count={len(KINDS)}", "--seed=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = [json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert {row["kind"] for row in rows} >= {name for name, kind in KINDS.items() if not kind.needs_mounts}
    assert all(row["recovered"] and row["equal"] and row["made_twice"] == [] for row in rows)
    assert all(any(row["statuses"]) for row in rows if not KINDS[row["kind"]].is_survived)
    assert sum(row["finished_before"] for row in rows) > 0
    assert all(row["finished_before"] for row in rows if row["kind"] == TORN)


def test_faults_on_record_are_not_repeated(tmp_path, monkeypatch):
    """Catches a stopped study that begins again."""
    made = []
    monkeypatch.setattr(Study, "_fault", lambda self, number: made.append(number) or {"number": number})
    (tmp_path / "images").mkdir()
    append_rows(tmp_path / ROWS, [{"number": 0}, {"number": 2}])
    assert [row["number"] for row in Study(tmp_path, seed=0).run(4)] == [0, 1, 2, 3]
    assert made == [1, 3]


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


def test_the_images_of_a_group_that_is_not_whole_are_not_finished(tmp_path):
    """With two shards the even images are one shard's, in groups of two: 0 and 2, 4 and 6."""
    append_rows(tmp_path / "run" / "0" / RECORDS, [record("k", number) for number in (0, 2, 4)])
    assert set(finished_work(tmp_path, shards=2, group_size=2)) == {"images k p0 0 0", "images k p2 0 0"}


def test_steps_before_the_checkpoint_that_are_made_again_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.faults.work.saved_steps", lambda folder: 2)
    (tmp_path / "metrics-1.csv").write_text("step,train/loss\n0,1.0\n1,0.9\n2,0.8\n")
    before = finished_work(tmp_path, 1, 1)
    (tmp_path / "metrics.csv").write_text("step,train/loss\n2,0.8\n3,0.7\n")
    assert made_twice(before, finished_work(tmp_path, 1, 1)) == []
    (tmp_path / "metrics.csv").write_text("step,train/loss\n1,0.9\n2,0.8\n")
    assert made_twice(before, finished_work(tmp_path, 1, 1)) == ["step 1"]


def test_damage_changes_what_it_is_meant_to(tmp_path):
    """Catches a fault that does nothing, after which everything recovers."""
    scene = Scene(None, tmp_path, None, Random(0))
    append_rows(tmp_path / RECORDS, [record("k", number) for number in range(2)])
    before = results(tmp_path)
    tear_record(scene)
    assert len(results(tmp_path)["images"]) < len(before["images"])
    table_file = tmp_path / "features-train-a.safetensors"
    table_file.write_bytes(bytes(1000))
    flip_bytes(scene)
    assert 0 < sum(map(bool, table_file.read_bytes())) <= 8
    was = table_file.stat().st_mtime
    set_times_ahead(scene)
    assert table_file.stat().st_mtime > was + 3e7


END, FAIL = ("-c", "print('made')"), ("-c", "raise SystemExit('error: no')")
FORK = ("-c", "import os, subprocess, time; os.fork() and subprocess.Popen(['sleep', '60']); time.sleep(60)")


def test_a_stage_follows_only_one_that_ended_well(tmp_path):
    assert (running := Running([[END, END], [END]], tmp_path)).wait(30)
    assert running.statuses == [0, 0, 0]
    assert log_of(tmp_path).read_text().count("made") == 3  # two print at once: their ends of lines may follow later
    assert (running := Running([[FAIL], [END]], tmp_path)).wait(30)
    assert running.statuses == [1]


def test_what_a_command_has_started_is_found_and_killed_with_it(tmp_path):
    """Catches orphans that write into the folder of the run that is compared."""
    running = Running([[FORK]], tmp_path)
    (parent,) = running.alive
    # one of the two children runs another program
    while len(children(parent, forked=False)) < 2 or len(children(parent, forked=True)) != 1:
        assert not running.wait(0.02)
    (forked,) = children(parent, forked=True)
    send(signal.SIGKILL, [parent])
    assert running.wait(30)
    assert running.statuses == [-signal.SIGKILL]
    assert forked in marked_processes(tmp_path)
    running.kill()
    while marked_processes(tmp_path):
        pass


def test_a_training_is_killed_once_it_has_a_checkpoint_to_cut_short(tmp_path):
    """Catches a kill before the first checkpoint, after which there is nothing to damage."""
    save = f"open('{tmp_path}/latest.ckpt', 'wb').write(bytes(99))"
    command = ("-c", f"import time; time.sleep(0.3); {save}; time.sleep(60)")
    scene = Scene(Running([[command]], tmp_path), tmp_path, None, Random(0))
    KINDS[TORN].strike(scene)
    assert scene.running.statuses == [-signal.SIGKILL]
    KINDS[TORN].damage(scene)
    assert (tmp_path / "latest.ckpt").stat().st_size < 99


def test_a_hang_is_no_recovery_and_a_fault_to_be_survived_ends_nothing():
    """Catches a process that is killed after its time and started again, counted as one that went on."""
    survived = next(name for name, kind in KINDS.items() if kind.is_survived)
    ended = next(name for name, kind in KINDS.items() if not kind.is_survived)
    row = {"recovered": True, "equal": True, "made_twice": [], "hung": False, "statuses": [0, -9]}
    assert is_good(row | {"kind": ended})
    assert not is_good(row | {"kind": ended, "hung": True})
    assert not is_good(row | {"kind": survived})
    assert is_good(row | {"kind": survived, "statuses": [0]})
