"""CPU threads given back by rounds of decoding while other processes use the cores. The threads of an operation wait
for each other, so that one whose core is taken holds up all."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from time import perf_counter
from typing import ParamSpec, Protocol, TypeVar

import torch

from lantern.runtime.cpu_contention import CpuContention, usable_cores

WINDOW_S = 0.5  # between two looks at the load: the system counts in hundredths of a second
FIXING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # a user who sets one of these has chosen the number of threads
P = ParamSpec("P")
T = TypeVar("T")


class Reading(Protocol):
    """The load by other processes since it was constructed."""

    def cores(self) -> float | None: ...  # average number used; None where the system does not tell


class Threads(Protocol):
    """How many CPU threads torch uses in a round of decoding; afterwards it has as many as before."""

    def decoding(self) -> AbstractContextManager[None]: ...


class FixedThreads:
    """As many as torch has."""

    def decoding(self) -> AbstractContextManager[None]:
        """See Threads."""
        return nullcontext()


class CoreSharing:
    """One for each core that others leave: as many as torch has at most, one at least."""

    def __init__(
        self, cores: int, begin: Callable[[], Reading] = CpuContention, clock: Callable[[], float] = perf_counter
    ) -> None:
        """cores: that this process may run on."""
        self._cores, self._begin, self._clock, self._used = cores, begin, clock, 0
        self._reading, self._since = begin(), clock()

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """See Threads."""
        self._look()
        most = torch.get_num_threads()
        try:
            _use(max(1, min(most, self._cores - self._used)))
            yield
        finally:
            _use(most)

    def _look(self) -> None:
        if self._clock() - self._since < WINDOW_S:
            return
        self._used = round(self._reading.cores() or 0)
        self._reading, self._since = self._begin(), self._clock()


@cache
def core_sharing() -> Threads:
    """That of this process: fixed if the user has set the number of threads."""
    if any(name in os.environ for name in FIXING):
        return FixedThreads()
    return CoreSharing(len(usable_cores()))


def sharing_cores(run: Callable[P, T]) -> Callable[P, T]:
    """The function, such as a round of decoding, with the threads that core_sharing() leaves it."""

    @wraps(run)
    def shared(*args: P.args, **kwargs: P.kwargs) -> T:
        with core_sharing().decoding():
            return run(*args, **kwargs)

    return shared


def _use(count: int) -> None:
    if count != torch.get_num_threads():
        torch.set_num_threads(count)
