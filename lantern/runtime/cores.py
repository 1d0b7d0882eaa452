"""The cores of this machine: how much other processes use them, and CPU threads that decoding gives up to them. The
threads of an operation wait for each other, so that one whose core is taken holds up all."""

import os
from collections.abc import Callable
from functools import cache, partial, wraps
from pathlib import Path
from time import perf_counter, process_time
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns: idle, waiting for disks
GPU_CORES = 2  # that decoding on a GPU keeps busy at most: its launches, and its driver
WINDOW_S = 0.5  # between two looks at the load: the system counts in hundredths of a second
FIXING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # a user who sets one of these has chosen the number of threads
P = ParamSpec("P")
T = TypeVar("T")


def usable_cores() -> list[int]:
    """The cores that this process may run on, by their numbers."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class CpuContention:
    """Average number of this process's cores used by other processes since construction."""

    def __init__(self) -> None:
        self._before = _busy_s(), process_time(), perf_counter()

    def cores(self, needed: int | None = None) -> float | None:
        """needed: cores that the measured work uses, by default all; other processes' use of the remaining cores does
        not count. None if the system has no /proc/stat."""
        busy, own, started = self._before
        now = _busy_s()
        if busy is None or now is None:
            return None
        elapsed = perf_counter() - started
        spare = max(0, len(usable_cores()) - needed) if needed else 0
        return max(0.0, (now - busy - (process_time() - own)) / elapsed - spare) if elapsed > 0 else 0.0

    def cores_beside(self, made: Tensor) -> float | None:
        """What other processes used beside the decoding of these tokens, on whichever device they are."""
        return self.cores(GPU_CORES) if made.is_cuda else self.cores()


def _busy_s() -> float | None:
    """Busy seconds of the usable cores since the system's start, time stolen by other guests of the host included."""
    names = {f"cpu{core}" for core in usable_cores()}
    try:
        lines = [line.split() for line in STAT.read_text().splitlines()]
    except OSError:
        return None
    used = [values[:8] for name, *values in filter(None, lines) if name in names]  # guests are part of the user column
    ticks = [int(value) for values in used for column, value in enumerate(values) if column not in IDLE]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


class CoreSharing:
    """Decodes with one thread for each core that others leave: as many as torch has at most, one at least."""

    def __init__(
        self, cores: int, begin: Callable[[], CpuContention] = CpuContention, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._cores, self._begin, self._clock, self._used = cores, begin, clock, 0
        self._reading, self._since = begin(), clock()

    def __call__(self, run: Callable[[], T]) -> T:
        """Calls it with that number of threads; afterwards torch's number is as before."""
        if self._clock() - self._since >= WINDOW_S:
            self._used = round(self._reading.cores() or 0)
            self._reading, self._since = self._begin(), self._clock()
        most = torch.get_num_threads()
        try:
            _set_threads(max(1, min(most, self._cores - self._used)))
            return run()
        finally:
            _set_threads(most)


@cache
def core_sharing() -> CoreSharing | None:
    """That of this process; None if the user has set the number of threads."""
    return None if any(name in os.environ for name in FIXING) else CoreSharing(len(usable_cores()))


def sharing_cores(run: Callable[P, T]) -> Callable[P, T]:
    """The function, such as a round of decoding, with the threads that core_sharing() leaves it."""

    @wraps(run)
    def shared(*args: P.args, **kwargs: P.kwargs) -> T:
        work = partial(run, *args, **kwargs)
        return sharing(work) if (sharing := core_sharing()) else work()

    return shared


def _set_threads(count: int) -> None:
    if count != torch.get_num_threads():
        torch.set_num_threads(count)
