"""CPU use by other processes during a timed run."""

import os
from pathlib import Path
from time import perf_counter

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns: idle, waiting for disks


class CpuContention:
    """Average number of cores used by other processes since construction."""

    def __init__(self) -> None:
        self._before = _busy_s(), _own_s(), perf_counter()

    def cores(self) -> float | None:
        """None where the system has no /proc/stat."""
        busy, own, started = self._before
        now = _busy_s()
        if busy is None or now is None:
            return None
        elapsed = perf_counter() - started
        return max(0.0, (now - busy - (_own_s() - own)) / elapsed) if elapsed > 0 else 0.0


def _busy_s() -> float | None:
    """Busy seconds of all cores since the system's start, time stolen by other guests of the host included."""
    try:
        columns = STAT.read_text().splitlines()[0].split()[1:9]  # guests are part of the user column
    except (OSError, IndexError):
        return None
    ticks = sum(int(value) for index, value in enumerate(columns) if index not in IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    times = os.times()
    return times.user + times.system
