"""The repository's commands in the process of the test, which saves the start of an interpreter and its libraries; and
Python in a process of its own."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from runpy import run_module, run_path

import pytest
from support.paths import ROOT

from lantern.cli import composing
from lantern.training.run import fit


def run_script(monkeypatch: pytest.MonkeyPatch, script: str, *overrides: str) -> None:
    """The command, to its end. As in a process of its own, nothing is there yet that an earlier one has built."""
    composing._built.cache_clear()
    composing._held.clear()
    monkeypatch.setattr(sys, "argv", [script, *overrides, "hydra/job_logging=none"])
    run_path(str(ROOT / script), run_name="__main__")


@contextmanager
def trainings_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within it, run_script of train.py leaves this process's warnings and signals as they were."""
    monkeypatch.setattr(fit, "silence_warnings", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run_as_module(monkeypatch: pytest.MonkeyPatch, module: str, *overrides: str) -> None:
    """`python -m module`, to its end."""
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", [module, *overrides, "hydra/job_logging=none"])
    run_module(module, run_name="__main__")


def refusal(monkeypatch: pytest.MonkeyPatch, script: str, *overrides: str) -> str:
    """The sentence with which a command ends, which Python prints with status 1. Any other exception passes through."""
    with pytest.raises(SystemExit) as ended:
        run_script(monkeypatch, script, *overrides)
    assert isinstance(ended.value.code, str)
    return ended.value.code


def module_refusal(monkeypatch: pytest.MonkeyPatch, module: str, *overrides: str) -> str:
    """The same of `python -m module`."""
    with pytest.raises(SystemExit) as ended:
        run_as_module(monkeypatch, module, *overrides)
    assert isinstance(ended.value.code, str)
    return ended.value.code


def python(
    *arguments: str, folder: Path = ROOT, timeout: int | None = None, **variables: str
) -> subprocess.CompletedProcess:
    """Python in a process of its own, which must end well."""
    own = os.environ | variables
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def printed(said: str) -> list[str]:
    """The overrides of the evaluate command that train.py prints, as a shell splits them."""
    program, script, *overrides = shlex.split(said.rpartition("measure it with: ")[2].splitlines()[0])
    assert (program, script) == ("python", "evaluate.py")
    return overrides
