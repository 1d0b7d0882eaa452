"""The comparison under load: what it runs in a process of its own, and how it is printed."""

import json
import os
import subprocess
import sys

from support.paths import ROOT
from support.tiny_weights import load_tiny, write_tiny_weights

from lantern.cli import contention
from lantern.cli.contention import ARMS, METHODS, Arm, compare, line, seconds_of


def test_each_arm_is_measured_by_itself_with_its_variables(monkeypatch, capsys):
    """Catches variables that come too late for torch, and the user's own left over."""
    asked = []

    def run(command, env, **_):
        asked.append((command[3:], {name: env[name] for name in env if name.startswith(("GOMP", "OMP"))}))
        figures = {"plain idle": [1, 3, 2], "plain loaded": [4], "window idle": [0.5], "window loaded": [2]}
        return subprocess.CompletedProcess(command, 0, json.dumps(figures), "")

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(contention.subprocess, "run", run)
    compare(dtypes=("float32",))
    assert asked == [([arm.threads, "dtype=float32"], dict(arm.variables)) for arm in ARMS]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ARMS)
    assert lines[1].split() == ["float32", "default", "2.00", "4.00", "0.50", "2.00", "2.0,", "4.0"]


def test_a_line_is_as_wide_as_its_heading(capsys):
    compare(arms=(), dtypes=())
    heading = capsys.readouterr().out.rstrip()
    figures = {f"{method} {load}": [1.0] for method in METHODS for load in contention.LOADS}
    assert line("auto", "x", figures).index("1.00  1.0, 1.0") + 4 == heading.index("  loaded/idle")


def test_an_arm_measures_both_methods_alone_and_beside_a_busy_process(tmp_path):
    weights = write_tiny_weights(tmp_path, side=4)
    code = (
        "from lantern.cli import contention; contention.SETTLING_S = 0; "
        f"print(*contention.measure('sharing', ['dtype=float32', 'paths.weights={weights}'], 1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "."}
    )
    assert done.stdout.split() == ["plain", "idle", "window", "idle", "plain", "loaded", "window", "loaded"], (
        done.stderr
    )


def test_a_slow_image_is_extrapolated_from_its_rounds(tmp_path, monkeypatch):
    """Catches a measurement of hours where an image takes minutes under load."""
    times = iter(range(1000))
    monkeypatch.setattr(contention, "perf_counter", lambda: next(times))
    plain = load_tiny(tmp_path).pipeline(drafter="none")
    seconds = seconds_of(plain, limit_s=10)
    assert seconds == 11 * 256 / 11  # one token a step, one tick each


def test_arms_are_told_apart():
    assert len({arm.name for arm in ARMS}) == len({(arm.threads, *arm.variables.items()) for arm in ARMS}) == len(ARMS)
    assert Arm("default", "fixed", {}) == ARMS[0]


def test_help_says_what_is_compared():
    command = [sys.executable, "-m", "lantern.cli.contention", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Decoding beside a busy process")
