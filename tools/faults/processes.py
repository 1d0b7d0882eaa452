"""Commands of this package in processes forked from one that has loaded the libraries, which takes a short command most
of its time. All else is as in `python train.py …` and `python -m …`."""

import atexit
import importlib
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pytorch_lightning.utilities import rank_zero_only

from lantern.runtime.home import CHECKOUT

LIBRARIES = ("hydra", "pytorch_lightning", "datasets", "wandb", "matplotlib.pyplot", "torch_fidelity", "scipy.linalg")
POLL_S, LONGEST_POLL_S = 0.005, 1.0
PATIENCE_S = 10.0  # of a launcher with processes that it has asked to end


class Command(NamedTuple):
    """A script of the checkout (train.py) or a module, its settings, and environment variables."""

    script: str
    settings: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


Launch = Callable[[], int]  # what a forked process does; its exit status


def load_libraries() -> None:
    """To be called before the first start."""
    for name in LIBRARIES:
        importlib.import_module(name)


def fork(work: Launch, group: int = 0) -> int:
    """Starts a process in a group, by default one of its own; returns its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        with suppress(OSError):  # the child was faster, or has ended
            os.setpgid(child, group)
        return child
    status = 1
    try:
        with suppress(OSError):
            os.setpgid(0, group)
        status = work()
    finally:
        os._exit(status)


def run(command: Command, log: Path) -> int:
    """Runs a command to its end, exit handlers included, its output appended to a file; returns its status."""
    atexit._clear()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.environ.update(command.variables)
    rank_zero_only.rank = int(os.environ.get("RANK", 0))  # Lightning read it when it was loaded
    sys.argv = [command.script, *command.settings]
    status = _status_of(command.script)
    with suppress(BaseException):  # a second Ctrl-C
        threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _status_of(script: str) -> int:
    """Runs a script as the interpreter does; the exit status."""
    try:
        if script.endswith(".py"):
            sys.argv[0] = str(CHECKOUT / script)
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        if isinstance(ending.code, int) or ending.code is None:
            return ending.code or 0
        print(ending.code, file=sys.stderr)
        return 1
    except BaseException as error:
        traceback.print_exc()
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def run_together(commands: Sequence[Command], log: Path) -> int:
    """Runs commands as torchrun does, to which the process itself corresponds: a signal is passed on to them, and all
    end with the first that fails."""
    group, received = os.getpgrp(), []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: received.append(number))
    alive = [fork(partial(run, command, log), group) for command in commands]
    failed, asked = False, None
    while alive:
        for process in list(alive):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                alive.remove(process)
                failed = failed or status != 0
        if (failed or received) and asked is None:
            asked = time.monotonic()
            send(received[0] if received else signal.SIGTERM, alive)
        elif asked is not None and time.monotonic() - asked > PATIENCE_S:
            send(signal.SIGKILL, alive)
        time.sleep(POLL_S)
    return int(failed)


def send(number: int, processes: Sequence[int]) -> None:
    """Sends a signal to those of the processes that are there."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


Stage = Sequence[Launch]  # run side by side


class Running:
    """Stages that run one after another, each where the one before has ended well."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._left = list(stages)
        self.alive: list[int] = []  # processes of this stage
        self.statuses: list[int] = []  # of all that have ended; negative: the signal
        self.waited_s = 0.0
        self._groups: list[int] = []
        self._next()

    def _next(self) -> None:
        for work in self._left.pop(0):
            self.add(work)

    def add(self, work: Launch) -> None:
        """Starts one more process in this stage."""
        self.alive.append(fork(work))
        self._groups.append(self.alive[-1])

    def is_over(self) -> bool:
        """Whether nothing runs; to be asked again and again, which starts the next stage."""
        for process in list(self.alive):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self.alive.remove(process)
                self.statuses.append(os.waitstatus_to_exitcode(status))
        if self.alive:
            return False
        if any(self.statuses) or not self._left:
            return True
        self._next()
        return False

    def wait(self, seconds: float) -> bool:
        """Waits for the end of all stages, so many seconds at most; whether they ended. Time in which this process,
        too, is stopped does not count."""
        deadline, before = self.waited_s + seconds, time.monotonic()
        while not (over := self.is_over()) and self.waited_s < deadline:
            time.sleep(POLL_S)
            now = time.monotonic()
            self.waited_s, before = self.waited_s + min(now - before, LONGEST_POLL_S), now
        return over

    def sweep_up(self) -> None:
        """Kills all that is left, helpers of ended processes included."""
        self._left.clear()
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        self.wait(PATIENCE_S)


def forked_by(process: int) -> list[int]:
    """The living processes that a process has forked and that run no other program."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return [int(child) for child in found if _program(child) == _program(process)]
    except OSError:  # one of them has ended
        return []


def _program(process: int | str) -> str:
    return os.readlink(f"/proc/{process}/exe") + Path(f"/proc/{process}/cmdline").read_text()
