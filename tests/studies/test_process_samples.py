"""The measuring of long runs: a leak of memory, files or threads and a loss of speed are found, and a steady process is
called flat."""

import subprocess
import sys
from pathlib import Path

import pytest

from lantern.studies.process_samples import Sample, folder_bytes, sample, verdicts

LOOP = """
import sys, threading
kept = [bytearray(b"x") * (64 << 20)]
for line in sys.stdin:
    {leak}
    print(flush=True)
"""
LEAKS = {
    "memory_mb": "kept.append(bytearray(b'x') * (1 << 20))",
    "files": "kept.append(open('/dev/null'))",
    "threads": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "none": "pass",
}
ROUNDS = 60


def samples_of(leak: str, folder: Path) -> list[Sample]:
    """One of a real process after each of its rounds."""
    command = [sys.executable, "-c", LOOP.format(leak=leak)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = []
        for done in range(1, ROUNDS + 1):
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "\n"
            found.append(sample(process.pid, done, folder))
        process.stdin.close()
    return found


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found_in_what_it_leaks_and_nowhere_else(name, tmp_path):
    """Catches a measurement of the wrong process, unit or part of the run."""
    found = {one.name: one for one in verdicts(samples_of(LEAKS[name], tmp_path))}
    looked = [key for key in ("memory_mb", "files", "threads") if not found[key].is_flat]
    assert looked == [key for key in looked if key == name or (name, key) == ("threads", "memory_mb")]
    if name != "none":
        assert name in looked
        assert found[name].slope == pytest.approx(1000, rel=0.3)  # one a round


def steady(cpu_s: list[float]) -> list[Sample]:
    return [Sample(10 * i, 100.0, 5, 3, spent, 1.0) for i, spent in enumerate(cpu_s)]


def test_a_loss_of_speed_is_found_in_processor_time():
    """Catches speed by the clock, which other processes change."""
    even, slower = [0.1 * i for i in range(101)], [0.1 * i + 0.0005 * i**2 for i in range(101)]
    assert verdicts(steady(even))[-1].is_flat
    verdict = verdicts(steady(slower))[-1]
    assert not verdict.is_flat
    assert verdict.first > 1.5 * verdict.last
    assert verdict.slope < 0


def test_few_samples_have_a_middle_and_speeds_all_the_same():
    """Catches a tenth of the work in which no sample fell."""
    samples = [Sample(done, 100.0, 5, 3, 2.0 * done, 1.0) for done in (1, 20, 90, 101)]
    speed = verdicts(samples)[-1]
    assert (speed.first, speed.middle, speed.last) == pytest.approx((0.5, 0.5, 0.5))


def test_work_done_before_the_first_image_does_not_count():
    """Catches the growth of the start, while weights are read, taken for a leak."""
    start = [Sample(0, 10.0, 1, 1, 0.0, 0.0)] * 50
    assert all(one.is_flat for one in verdicts([*start, *steady([0.1 * i for i in range(101)])]))


def test_the_size_of_a_folder_counts_the_files_that_are_asked_for(tmp_path):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "run.wandb").write_bytes(bytes(300))
    (tmp_path / "log").write_bytes(bytes(20))
    assert folder_bytes(tmp_path) == 320
    assert folder_bytes(tmp_path, lambda path: "wandb" in path.parts) == 300
