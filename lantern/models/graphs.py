"""A target's passes as CUDA graphs. A pass over the few rows of a round is a thousand kernels, which a GPU finishes
sooner than Python can ask for them; recorded once, they are asked for together."""

import logging
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from lantern.models.cache import KVCache

log = logging.getLogger(__name__)
EXTENT = 64  # slots by which the part of the cache that passes look at grows: each extent has a recording of its own
MET = 3  # passes of a shape before it is recorded: a batch that drains has many shapes, none of them for long

Run = Callable[..., tuple[Tensor, ...]]  # of a pass over the cache's placed slots, from tensors
Record = Callable[[Callable[[], tuple[Tensor, ...]]], tuple[Callable[[], None], tuple[Tensor, ...]]]


class PassGraphs:
    """Recordings of one cache's passes, by shape."""

    def __init__(self, run: Run, record: Record | None = None) -> None:
        """record: from a pass to what repeats it and where it writes; None: by CUDA."""
        self._run, self._record = run, record or _Recorder()
        self._met: Counter[tuple] = Counter()
        self._made: dict[tuple, tuple[list[Tensor], Callable[[], None], tuple[Tensor, ...], Tensor]] = {}
        self._place: int | None = None  # where the cache lies

    @classmethod
    def of(cls, run: Run, device: torch.device) -> "PassGraphs | None":
        """None where there is no GPU."""
        return cls(run) if device.type == "cuda" else None

    def __call__(self, cache: KVCache, *inputs: Tensor, settings: tuple = ()) -> tuple[Tensor, ...]:
        """What the run makes of the inputs; settings: what else that depends on."""
        if cache.store.data_ptr() != self._place:
            self._place = cache.store.data_ptr()
            self._made.clear()
            self._met.clear()
        given = (*inputs, cache.placed)
        key = (cache.store.shape, cache.store.stride(), *(part.shape for part in given), settings)
        self._met[key] += 1
        if key not in self._made:
            if self._record is None or self._met[key] < MET:
                return self._run(*inputs)
            try:
                self._made[key] = self._recorded(cache, given)
            except RuntimeError as error:
                log.warning("passes cannot be recorded as CUDA graphs, kernels are launched one by one: %s", error)
                self._record, cache.placed = None, given[-1]
                return self._run(*inputs)
        read, replay, written, _ = self._made[key]
        for kept, fresh in zip(read, given, strict=True):
            kept.copy_(fresh)
        replay()
        return tuple(part.clone() for part in written)  # the next pass writes there again

    def _recorded(self, cache: KVCache, given: tuple[Tensor, ...]) -> tuple:
        """A recording reads and writes the same memory whenever it is replayed: `given` is copied there."""
        read = [part.clone() for part in given]
        cache.placed = read[-1]
        replay, written = self._record(lambda: self._run(*read[:-1]))
        return read, replay, written, cache.every  # which lives as long as what reads it


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
