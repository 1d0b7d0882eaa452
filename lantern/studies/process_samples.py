"""What a process uses while it works: samples of its memory, open files, threads, processor time and disk, each with
the work done so far; and a verdict on what grows from the first tenth of the work to the last."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")
TENTH = 0.1
LARGER, SLOWER = 1.05, 0.9  # than in the first tenth: ratios at which memory is said to grow, and speed to fall


class Sample(NamedTuple):
    """A process after `done` images or steps."""

    done: int
    memory_mb: float  # resident
    files: int
    threads: int
    cpu_s: float
    folder_mb: float


class Verdict(NamedTuple):
    """A quantity in the first, the middle and the last tenth of the work, and the slope of its least-squares line."""

    name: str
    first: float
    middle: float
    last: float
    slope: float  # per thousand images or steps
    is_flat: bool


def sample(process: int, done: int, folder: Path) -> Sample:
    """Reads Linux's /proc; FileNotFoundError or ProcessLookupError once the process has ended."""
    place = Path("/proc", str(process))
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
    if "VmRSS" not in status:  # it has ended, and nobody has waited for it
        raise ProcessLookupError(process)
    spent = (place / "stat").read_text().rpartition(")")[2].split()[11:13]  # user and system, in ticks
    return Sample(
        done, int(status["VmRSS"].split()[0]) / 1024, len(os.listdir(place / "fd")), int(status["Threads"]),
        sum(map(int, spent)) / TICKS, folder_bytes(folder) / 2**20,
    )  # fmt: skip


def folder_bytes(folder: Path, match: Callable[[Path], bool] = lambda path: True) -> int:
    """The sizes of the files below a folder; those that vanish meanwhile are left out."""
    total = 0
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if match(path):
                try:
                    total += path.lstat().st_size
                except FileNotFoundError:
                    continue
    return total


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """Of memory, files, threads and speed over the work, from the first sample with work done to the last one."""
    begun = [one for one in samples if one.done]
    done = np.array([one.done for one in begun], float)
    share = (done - done[0]) / max(np.ptp(done), 1)
    off_middle = abs(share - 0.5)  # where samples are few, the middle is the nearest one
    tenths = share <= TENTH, off_middle <= max(TENTH / 2, off_middle.min()), share >= 1 - TENTH
    found = []
    for name, larger in (("memory_mb", LARGER), ("files", 1.0), ("threads", 1.0)):
        values = np.array([getattr(one, name) for one in begun], float)
        first, middle, last = (float(np.median(values[part])) for part in tenths)
        found.append(Verdict(name, first, middle, last, _slope(done, values), last <= larger * first))
    cpu = np.array([one.cpu_s for one in begun])
    ends = np.interp([[0, TENTH], [0.5 - TENTH / 2, 0.5 + TENTH / 2], [1 - TENTH, 1]], share, cpu)
    first, middle, last = map(float, TENTH * np.ptp(done) / np.maximum(np.diff(ends)[:, 0], 1 / TICKS))
    speeds = np.diff(done) / np.maximum(np.diff(cpu), 1 / TICKS)
    found.append(Verdict("per_cpu_s", first, middle, last, _slope(done[1:], speeds), last >= SLOWER * first))
    return found


def _slope(done: np.ndarray, values: np.ndarray) -> float:
    return float(1000 * np.polyfit(done, values, 1)[0])
