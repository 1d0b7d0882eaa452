"""Processes that end with torchrun: those of a killed torchrun would go on, and train in the folder of those that the
same command starts next."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps

PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal at the parent's end


def ends_with_torchrun(command: Callable[[], object]) -> Callable[[], object]:
    """A decorator of an entry point. Without torchrun, or elsewhere than on Linux, it changes nothing."""

    @wraps(command)
    def run() -> object:
        if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return command()

    return run
