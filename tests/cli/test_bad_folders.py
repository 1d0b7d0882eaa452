"""Run folders that are full, shared, damaged or somewhere else: one sentence, and nothing finished is lost."""

import errno
import fcntl
import subprocess
import sys

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.configs import composed_with_hydra
from support.evaluations import measured as evaluate
from support.fake_pipeline import FakePipeline
from support.paths import ROOT

from lantern.errors import LanternError
from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import SUMMARY, append_rows
from lantern.evaluation.run_folder import FINISHED, EvaluationFolder
from lantern.reporting.merge import read_profiles
from lantern.runtime.files import alone_in, read_object, replace_text
from lantern.tuning.auto import SavedChoice

DAMAGED = ["[1]", '{"request": "a']
HOLDER = """
import sys
from pathlib import Path
from lantern.runtime.files import alone_in
with alone_in(Path(sys.argv[1])):
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_a_record_on_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(LanternError, match=r"No space left on device.*what was finished is kept"):
        append_rows("/dev/full", [{"a": 1}])


def test_files_of_a_run_folder_that_are_links_are_not_written_through(tmp_path):
    """Catches a folder from elsewhere whose run empties, or appends to, any file of this machine."""
    (tmp_path / "mine").write_text("kept")
    run, writable = tmp_path / "run", instantiate(composed_with_hydra("evaluate").hydra.callbacks.writable)
    for name in (".running", RECORDS, ".writable", ".hydra/config.yaml"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).symlink_to(tmp_path / "mine")
        with pytest.raises(LanternError, match="cannot write"):
            alone_in(run).__enter__() if name == ".running" else append_rows(run / name, [{"a": 1}])
        with pytest.raises(SystemExit, match="link"):
            writable.on_run_start(OmegaConf.create({"hydra": {"run": {"dir": str(run)}}}))
        (run / name).unlink()
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize(("command", "where"), [("evaluate", "file/run"), ("train", "loop")])
def test_a_run_folder_that_cannot_be_made_is_one_sentence(command, where, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    folder = tmp_path / where
    writable = instantiate(composed_with_hydra(command).hydra.callbacks.writable)
    with pytest.raises(SystemExit, match=f"cannot write {folder} .*; choose a folder"):
        writable.on_run_start(OmegaConf.create({"hydra": {"run": {"dir": str(folder)}}}))


def test_two_runs_in_one_folder_are_one_too_many(tmp_path):
    """Catches rows of two runs that disturb each other's timings; the lock ends with its process, also a killed one."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"inside\n"
        with pytest.raises(LanternError, match=r"is in use by another run; wait for its end, or give another folder"):
            alone_in(tmp_path).__enter__()
    finally:
        holder.kill()
        holder.communicate()
    with alone_in(tmp_path):
        pass


@pytest.mark.parametrize("has_locks", [True, False])
def test_what_killed_runs_had_begun_to_write_is_removed(has_locks, tmp_path, monkeypatch):
    """Catches a disk that fills with parts of checkpoints, and the files of a run that goes on where no lock tells."""
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    begun = [tmp_path / ".writing-a" / "latest.ckpt", tmp_path / "checkpoints" / ".writing-b" / "latest.ckpt"]
    others = [tmp_path / "checkpoints" / "latest.ckpt", tmp_path / "0" / ".writing-c" / "x"]
    for path in (*begun, *others):
        replace_text(path, "half")
    with alone_in(tmp_path):
        assert [path.parent.exists() for path in begun] == [not has_locks] * 2
        assert evaluate(tmp_path, tmp_path)  # also where no file system locks
    assert all(path.exists() for path in others)


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_of_a_run_is_made_again(content, tmp_path, caplog):
    """Catches a traceback at the start of a run in a folder that a full disk or an editor has damaged."""
    run = EvaluationFolder(tmp_path)
    run.finish("request")
    replace_text(tmp_path / SUMMARY, '{"AR": {"model": "m", "drafter": "none", "tree": "none", "acceptance": "exact"}}')
    assert run.is_finished("request")
    for name in (FINISHED, SUMMARY, "profiles.json", "tree.json"):
        (tmp_path / name).write_text(content)
        assert read_object(tmp_path / name) == {}
    assert not run.is_finished("request")
    assert read_profiles([tmp_path]) == {}
    assert SavedChoice(tmp_path / "tree.json", "request").read([]) == []
    assert f"{tmp_path / SUMMARY} is damaged" in caplog.text


def test_foreign_and_torn_lines_among_the_records_are_passed_over(tmp_path):
    """Catches a resumed run that stops at a line of another program, or makes its images again."""
    first = [m.row for m in evaluate(tmp_path, tmp_path)]
    path = tmp_path / RECORDS
    lines = path.read_bytes().splitlines(keepends=True)
    foreign = [b"3\n", b"null\n", b'"x"\n', b"[1]\n", b'{"a": 1}\n', b'{"key": null}\n', b"\xff\xfe\0\n", b"key,part\n"]
    path.write_bytes(b"".join([*foreign, *lines, *foreign, b'{"key": "to']))
    pipeline = FakePipeline()
    assert [m.row for m in evaluate(tmp_path, tmp_path, pipeline=pipeline)] == first
    assert pipeline.calls == pipeline.ar_calls == []
    assert path.read_bytes().count(b'"tokens"') == len(lines)  # no line twice
