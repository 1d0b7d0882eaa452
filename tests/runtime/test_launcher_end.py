"""A killed torchrun takes its processes with it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.paths import ROOT

RANK = """
import time
from lantern.training.run.entry import end_with_torchrun
end_with_torchrun()
print("ready", flush=True)
time.sleep(60)
"""
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def is_alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells processes of their parent's end")
@pytest.mark.parametrize("variables", [{"TORCHELASTIC_RUN_ID": "a"}, {}])
def test_a_rank_ends_with_a_killed_torchrun_and_any_other_process_does_not(variables):
    """Catches ranks that train on in the folder of the next start."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")} | variables
    command = [sys.executable, "-c", LAUNCHER, RANK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=given) as launcher:
        assert launcher.stdout.readline() == "ready\n"
        (rank,) = map(int, Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split())
        launcher.kill()
        launcher.wait()
        deadline = time.monotonic() + (20 if variables else 0.5)
        while is_alive(rank) and time.monotonic() < deadline:
            time.sleep(0.02)
        survived = is_alive(rank)
        with suppress(ProcessLookupError):
            os.kill(rank, signal.SIGKILL)
    assert survived == (not variables)
