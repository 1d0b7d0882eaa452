"""A command of Lantern that another one starts."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lantern.errors import LanternError
from lantern.runtime.home import CHECKOUT


def run_command(command: Sequence[str], remedy: str) -> None:
    """Runs a script, such as evaluate.py, with its settings in a process of its own, printed first. LanternError, with
    the remedy, if it fails."""
    script, *settings = command
    program, shown = program_of(script)
    print(f"\n$ {shlex.join([*shown, *settings])}", flush=True)
    done = subprocess.run([*program, *settings], check=False)
    if done.returncode:
        raise LanternError(f"{script} ended with status {done.returncode}, see above; {remedy}")


def program_of(script: str) -> tuple[list[str], list[str]]:
    """How a script is started, and how a user would start it: from the checkout, or as the command that a wheel
    installed beside the interpreter."""
    if (path := CHECKOUT / script).is_file():
        return [sys.executable, str(path)], ["python", script]
    installed = f"lantern-{Path(script).stem}"
    beside = Path(sys.executable).with_name(installed)
    return [str(beside) if beside.is_file() else installed], [installed]
