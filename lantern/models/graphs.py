"""A target's passes as CUDA graphs. A pass over the few tokens of a round launches a thousand kernels, which a GPU
finishes faster than Python launches them; a recorded graph launches them together."""

import logging
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from lantern.models.cache import KVCache

log = logging.getLogger(__name__)
EXTENT = 64  # slots by which the extent that passes read grows: each extent has its own recording
MIN_PASSES = 3  # of a shape before it is recorded: the shapes of a draining batch are short-lived

Run = Callable[..., tuple[Tensor, ...]]  # a pass over the cache's reserved slots, from tensors
Record = Callable[[Callable[[], tuple[Tensor, ...]]], tuple[Callable[[], None], tuple[Tensor, ...]]]


class PassGraphs:
    """Recordings of one cache's passes, by shape."""

    def __init__(self, record: Record | None = None) -> None:
        """record: from a pass to a function that repeats it and the tensors it writes; None: by CUDA."""
        self._record = record or _Recorder()
        self._passes: Counter[tuple] = Counter()
        self._made: dict[tuple, tuple[list[Tensor], Callable[[], None], tuple[Tensor, ...], Tensor]] = {}
        self._address: int | None = None  # of the cache's memory

    @classmethod
    def of(cls, device: torch.device) -> "PassGraphs | None":
        """None if the device is no GPU."""
        return cls() if device.type == "cuda" else None

    def __call__(self, run: Run, cache: KVCache, *inputs: Tensor, settings: tuple = ()) -> tuple[Tensor, ...]:
        """run(*inputs); settings: all else that the result depends on."""
        if cache.store.data_ptr() != self._address:
            self._address = cache.store.data_ptr()
            self._made.clear()
            self._passes.clear()
        given = (*inputs, cache.reserved)
        key = (cache.store.shape, cache.store.stride(), *(part.shape for part in given), settings)
        self._passes[key] += 1
        if key not in self._made:
            if self._record is None or self._passes[key] < MIN_PASSES:
                return run(*inputs)
            try:
                self._made[key] = self._recorded(run, cache, given)
            except RuntimeError as error:
                log.warning("passes cannot be recorded as CUDA graphs, kernels are launched one by one: %s", error)
                self._record, cache.reserved = None, given[-1]
                return run(*inputs)
        read, replay, written, _ = self._made[key]
        for kept, fresh in zip(read, given, strict=True):
            kept.copy_(fresh)
        replay()
        return tuple(part.clone() for part in written)  # the next pass overwrites them

    def _recorded(self, run: Run, cache: KVCache, given: tuple[Tensor, ...]) -> tuple:
        """Every replay reads and writes the same memory: `given` is copied there."""
        read = [part.clone() for part in given]
        cache.reserved = read[-1]
        replay, written = self._record(lambda: run(*read[:-1]))
        return read, replay, written, cache.every  # kept alive as long as the recording that reads it


class _Recorder:
    """CUDA graphs that share one pool of memory, since only one of them runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], tuple[Tensor, ...]]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what libraries set up at their first call on a stream cannot be recorded
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            written = run()
        return graph.replay, written
