"""Whether the machine was somebody else's, too, while something was timed."""

import os
from pathlib import Path
from time import perf_counter

STAT = Path("/proc/stat")
IDLE = (3, 4)  # the columns of idle and of waiting for disks


class CpuContention:
    """Counts the cores that other processes keep busy from its making on."""

    def __init__(self) -> None:
        self._before = _busy_s(), _own_s(), perf_counter()

    def cores(self) -> float | None:
        """Mean over the time since; None where the system does not say."""
        busy, own, started = self._before
        now = _busy_s()
        if busy is None or now is None:
            return None
        elapsed = perf_counter() - started
        return max(0.0, (now - busy - (_own_s() - own)) / elapsed) if elapsed > 0 else 0.0


def _busy_s() -> float | None:
    """Seconds that all cores have worked since the system's start, time taken by other guests of the host included."""
    try:
        columns = STAT.read_text().splitlines()[0].split()[1:9]  # guests are counted among user processes
    except (OSError, IndexError):
        return None
    ticks = sum(int(value) for place, value in enumerate(columns) if place not in IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    times = os.times()
    return times.user + times.system
