"""CPU use by other processes during a timed run."""

import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from torch import Tensor

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns: idle, waiting for disks
GPU_CORES = 2  # that decoding on a GPU keeps busy at most: its launches, and its driver


def usable_cores() -> list[int]:
    """The cores that this process may run on, by their numbers."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class CpuContention:
    """Average number of this process's cores used by other processes since construction."""

    def __init__(self) -> None:
        self._before = _busy_s(), _own_s(), perf_counter()

    def cores(self, needed: int | None = None) -> float | None:
        """needed: cores that are in use by what is measured, all by default; what other processes use of the rest does
        not count. None where the system has no /proc/stat."""
        busy, own, started = self._before
        now = _busy_s()
        if busy is None or now is None:
            return None
        elapsed = perf_counter() - started
        spare = max(0, len(usable_cores()) - needed) if needed else 0
        return max(0.0, (now - busy - (_own_s() - own)) / elapsed - spare) if elapsed > 0 else 0.0

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
    columns = [column for name, *all_columns in filter(None, lines) if name in names for column in _busy(all_columns)]
    return sum(map(int, columns)) / os.sysconf("SC_CLK_TCK") if columns else None


def _busy(columns: Sequence[str]) -> list[str]:
    """Guests are part of the user column."""
    return [value for index, value in enumerate(columns[:8]) if index not in IDLE]


def _own_s() -> float:
    times = os.times()
    return times.user + times.system
