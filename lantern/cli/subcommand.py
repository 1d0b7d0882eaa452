"""A command of Lantern that another one starts."""

import shlex
import subprocess
from collections.abc import Sequence

from lantern.errors import LanternError
from lantern.runtime.programs import program_of


def run_command(command: Sequence[str], remedy: str) -> None:
    """Runs a script, such as evaluate.py, with its settings in a process of its own, printed first. LanternError, with
    the remedy, if it fails."""
    script, *settings = command
    program, shown = program_of(script)
    print(f"\n$ {shlex.join([*shown, *settings])}", flush=True)
    done = subprocess.run([*program, *settings], check=False)
    if done.returncode:
        raise LanternError(f"{script} ended with status {done.returncode}, see above; {remedy}")
