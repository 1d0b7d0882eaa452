"""A target's passes as CUDA graphs. A pass over the few tokens of a round launches a thousand kernels, which a GPU
finishes faster than Python launches them; a recorded graph launches them together."""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lantern.models.cache import KVCache

log = logging.getLogger(__name__)
EXTENT = 64  # slots: the smallest extent
MIN_PASSES = 3  # of a shape before it is recorded
MAX_RECORDINGS = 64  # at once; the one that was replayed longest ago gives way

Outputs = tuple[Tensor, ...]
Run = Callable[..., Outputs]  # a pass over the cache's reserved slots, from tensors
Record = Callable[[Callable[[], Outputs]], tuple[Callable[[], None], Outputs]]


class RecordingError(RuntimeError):
    """A recorded pass does not compute what the pass itself computes."""


class Recording(NamedTuple):
    """One shape's pass. Every replay reads and writes the same memory."""

    read: list[Tensor]
    replay: Callable[[], None]
    written: Outputs
    kept: Tensor  # alive as long as the recording that reads it

    @property
    def nbytes(self) -> int:
        """Of inputs and outputs; recordings share the memory of everything between them."""
        return sum(part.nbytes for part in (*self.read, *self.written))


def extent_of(slots: int) -> int:
    """The number of slots that a pass over `slots` of them reads, at most a quarter more beyond EXTENT. Each extent has
    a recording of its own: there are four of them between a length and its double."""
    step = max(EXTENT, 1 << max(0, (slots - 1).bit_length() - 3))
    return -(-slots // step) * step


def extents(slots: int) -> list[int]:
    """All extents of a cache of `slots` slots."""
    found = [extent_of(1)]
    while found[-1] < slots:
        found.append(extent_of(found[-1] + 1))
    return [min(extent, slots) for extent in found]


def is_recorded_size(rows: int, all_rows: int) -> bool:
    """Whether passes of a batch that has drained to `rows` rows are recorded: a full batch, or a power of two up to
    half of it, so that all sizes together hold at most twice the memory of a full batch's."""
    return rows == all_rows or (rows.bit_count() == 1 and 2 * rows <= all_rows)


class PassGraphs:
    """Recordings of one cache's passes, by shape."""

    def __init__(self, record: Record) -> None:
        """record: from a pass to a function that repeats it and the tensors it writes."""
        self._record: Record | None = record
        self._passes: Counter[tuple] = Counter()
        self._made: dict[tuple, Recording] = {}  # the one replayed last at the end
        self._refused: set[tuple] = set()  # shapes for whose recording memory was lacking
        self._address: int | None = None  # of the cache's memory

    @classmethod
    def of(cls, device: torch.device) -> "PassGraphs | None":
        """None if the device is no GPU."""
        return cls(checked(CudaRecorder(device))) if device.type == "cuda" else None

    @property
    def are_on(self) -> bool:
        """Whether every shape of the current cache's passes could be recorded so far."""
        return self._record is not None and not self._refused

    @property
    def nbytes(self) -> int:
        """Of all recordings' inputs and outputs."""
        return sum(recording.nbytes for recording in self._made.values())

    def __call__(self, run: Run, cache: KVCache, *inputs: Tensor, settings: tuple = ()) -> Outputs:
        """run(*inputs); settings: all else that the result depends on."""
        if cache.store.data_ptr() != self._address:
            self._address = cache.store.data_ptr()
            for known in (self._made, self._passes, self._refused):
                known.clear()
        given = (*inputs, cache.reserved)
        key = (cache.store.shape, cache.store.stride(), *(part.shape for part in given), settings)
        recording = self._made.pop(key, None) or self._new(key, run, cache, given)
        if recording is None:
            return run(*inputs)
        self._made[key] = recording
        for kept, fresh in zip(recording.read, given, strict=True):
            kept.copy_(fresh)
        recording.replay()
        return tuple(part.clone() for part in recording.written)  # the next pass overwrites them

    def _new(self, key: tuple, run: Run, cache: KVCache, given: tuple[Tensor, ...]) -> Recording | None:
        """None if the shape is short-lived, or cannot be recorded: at a lack of memory this shape alone, until the
        cache moves, and the other recordings make room; at any other error none."""
        self._passes[key] += 1
        is_lasting = self._passes[key] >= MIN_PASSES and is_recorded_size(cache.store.shape[2], cache.all_rows)
        if self._record is None or key in self._refused or not is_lasting:
            return None
        try:
            self._make_room(MAX_RECORDINGS - 1)
            return self._recorded(self._record, run, cache, given)
        except torch.OutOfMemoryError as error:
            log.warning("memory is lacking for the CUDA graph of a pass, kernels are launched one by one: %s", error)
            self._refused.add(key)
            self._make_room(0)
        except RuntimeError as error:
            log.warning("passes cannot be recorded as CUDA graphs, kernels are launched one by one: %s", error)
            self._record = None
        cache.reserved = given[-1]
        return None

    def _make_room(self, count: int) -> None:
        """Drops the recordings that were replayed longest ago, all but `count`."""
        for key in list(self._made)[: max(0, len(self._made) - count)]:
            del self._made[key], self._passes[key]

    @staticmethod
    def _recorded(record: Record, run: Run, cache: KVCache, given: tuple[Tensor, ...]) -> Recording:
        """`given` is copied to the memory that replays read."""
        read = [part.clone() for part in given]
        cache.reserved = read[-1]
        replay, written = record(lambda: run(*read[:-1]))
        return Recording(read, replay, written, cache.every)


def checked(record: Record) -> Record:
    """`record`, with RecordingError unless the first replay writes what the pass itself returns. A graph captured on
    another device or stream is empty: its outputs would stay what they were."""

    def compared(run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        expected = [part.clone() for part in run()]
        replay, written = record(run)
        for part in written:
            part.fill_(torch.nan)
        replay()
        for number, (found, wanted) in enumerate(zip(written, expected, strict=True)):
            difference, largest = float((found - wanted).abs().max()), float(wanted.abs().max())
            if not difference <= 4 * torch.finfo(wanted.dtype).eps ** 0.5 * largest:  # nan: nothing was written
                raise RecordingError(f"output {number} differs from the pass's own by {difference:g} of {largest:g}")
        return replay, written

    return compared


class CudaRecorder:
    """CUDA graphs on one device, be it the current one or not. They share one pool of memory, since only one of them
    runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # what libraries set up at their first call on a stream cannot be recorded
                run()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=stream):  # torch's own stream is of the first device
                written = run()
        return partial(self._replay, graph), written

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.device(self._device):
            graph.replay()
