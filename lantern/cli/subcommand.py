"""A command of this repository that another one starts."""

import shlex
import subprocess
import sys
from collections.abc import Sequence

from lantern.errors import LanternError
from lantern.runtime.home import CHECKOUT


def run_command(command: Sequence[str], remedy: str) -> None:
    """Runs a script of the checkout with its settings in a process of its own, printed first. LanternError, with the
    remedy, if it fails."""
    print(f"\n$ python {shlex.join(command)}", flush=True)
    done = subprocess.run([sys.executable, str(CHECKOUT / command[0]), *command[1:]], check=False)
    if done.returncode:
        raise LanternError(f"{command[0]} ended with status {done.returncode}, see above; {remedy}")
