"""The study of faults: its short form recovers from one fault of each kind, and it sees what goes wrong."""

import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from support.paths import ROOT

from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import append_rows
from lantern.identity import code_hash
from lantern.studies.fault_kinds import KINDS, Scene, can_mount, flip_bytes, set_times_ahead, small_disk, tear_record
from lantern.studies.faults import ROWS, Study, is_good, table
from lantern.studies.finished_work import finished_work, made_twice, results
from lantern.studies.forked import Command, Running, forked_by, run, run_together, send

TORN = "checkpoint cut short"


@pytest.mark.full
def test_one_fault_of_each_kind_leaves_the_results_of_an_undisturbed_run(tmp_path):
    """Catches any of them that changes tokens, weights or figures, or makes finished work again."""
    command = [sys.executable, "-m", "lantern.studies.faults", str(tmp_path), f"--count={len(KINDS)}", "--seed=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = [json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert {row["kind"] for row in rows} >= {name for name, kind in KINDS.items() if not kind.needs_mounts}
    assert all(row["recovered"] and row["equal"] and row["made_twice"] == [] for row in rows)
    assert all(any(row["statuses"]) for row in rows if not KINDS[row["kind"]].is_survived)
    assert sum(row["finished_before"] for row in rows) > 0
    assert all(row["finished_before"] for row in rows if row["kind"] == TORN)


def test_faults_on_record_are_not_repeated_unless_the_code_has_changed(tmp_path, monkeypatch):
    """Catches a stopped study that begins anew, and a table of two versions of the program."""
    made = []
    monkeypatch.setattr(Study, "_fault", lambda self, number: made.append(number) or {"number": number})
    monkeypatch.setattr("lantern.studies.faults.load_libraries", lambda: None)
    (tmp_path / "inputs.json").touch()
    row = {"seed": 0, "code": code_hash()}
    append_rows(tmp_path / ROWS, [row | {"number": 0}, row | {"number": 1, "code": "old"}, row | {"number": 2}])
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
    monkeypatch.setattr("lantern.studies.finished_work.saved_steps", lambda folder: 2)
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


SCRIPTS = {
    "sleep": "import time\ntime.sleep(60)\n",
    "fail": "raise SystemExit('error: no')\n",
    "end": "print('made')\n",
    "save": """
import pathlib, time
time.sleep(0.3)
pathlib.Path(__file__).with_name("latest.ckpt").write_bytes(bytes(99))
time.sleep(60)
""",
}


@pytest.fixture
def scripts(tmp_path, monkeypatch) -> Path:
    """A checkout with these scripts."""
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr("lantern.studies.forked.CHECKOUT", tmp_path)
    return tmp_path


def launched(scripts: Path, *names: str) -> list:
    return [partial(run, Command(f"{name}.py", ()), scripts / "log") for name in names]


def test_a_stage_follows_only_one_that_ended_well(scripts):
    assert (running := Running([launched(scripts, "end", "end"), launched(scripts, "end")])).wait(30)
    assert running.statuses == [0, 0, 0]
    assert (scripts / "log").read_text() == "made\n" * 3
    assert (running := Running([launched(scripts, "fail"), launched(scripts, "end")])).wait(30)
    assert running.statuses == [1]
    assert (scripts / "log").read_text().endswith("error: no\n")


def test_processes_that_run_together_end_with_the_first_that_fails_or_with_a_signal(scripts):
    """Catches a rank that is left when another is killed, as torchrun leaves none."""
    for names, number in ((("sleep", "fail"), None), (("sleep", "sleep"), signal.SIGTERM)):
        together = [partial(run_together, [Command(f"{name}.py", ()) for name in names], scripts / "log")]
        running = Running([together])
        if number:
            assert not running.wait(0.3)
            assert len(forked_by(running.alive[0])) == 2
            send(number, running.alive)
        assert running.wait(30)
        assert running.statuses == [1]


def test_a_killed_process_is_reported_by_its_signal(scripts):
    running = Running([launched(scripts, "sleep")])
    assert not running.wait(0.1)
    send(signal.SIGKILL, running.alive)
    assert running.wait(30)
    assert running.statuses == [-signal.SIGKILL]


def test_a_training_is_killed_once_it_has_a_checkpoint_to_cut_short(scripts):
    """Catches a kill before the first checkpoint, after which there is nothing to damage."""
    scene = Scene(Running([launched(scripts, "save")]), scripts, None, Random(0))
    KINDS[TORN].strike(scene)
    assert scene.running.wait(30)
    assert scene.running.statuses == [-signal.SIGKILL]
    KINDS[TORN].damage(scene)
    assert (scripts / "latest.ckpt").stat().st_size < 99


def test_the_table_counts_by_kind_and_names_what_was_not_tried():
    good = {"recovered": True, "equal": True, "made_twice": [], "lost_s": 1.0}
    kinds = list(KINDS)
    rows = [{"kind": kinds[0], **good}, {"kind": kinds[0], **good, "equal": False, "made_twice": ["a"], "lost_s": 3.0}]
    lines = table(rows).splitlines()
    assert lines[2] == f"| {kinds[0]} | 2 | 2 | 1 | 1 | 2.0 |"
    assert lines[3] == f"| {kinds[1]} | not tried |  |  |  |  |"


def test_a_mount_is_undone_when_its_block_ends(tmp_path):
    """Catches small disks that stay mounted after a failed trial."""
    if not can_mount():
        pytest.skip("file systems cannot be mounted here")
    with pytest.raises(NotADirectoryError), small_disk(tmp_path):
        Path(shutil.copy(__file__, tmp_path), "below a file").touch()
    assert list(tmp_path.iterdir()) == []


def test_a_hang_is_no_recovery_and_a_fault_to_be_survived_ends_nothing():
    """Catches a process that is killed after its time and started again, counted as one that went on."""
    survived = next(name for name, kind in KINDS.items() if kind.is_survived)
    ended = next(name for name, kind in KINDS.items() if not kind.is_survived)
    row = {"recovered": True, "equal": True, "made_twice": [], "hung": False, "statuses": [0, -9]}
    assert is_good(row | {"kind": ended})
    assert not is_good(row | {"kind": ended, "hung": True})
    assert not is_good(row | {"kind": survived})
    assert is_good(row | {"kind": survived, "statuses": [0]})
