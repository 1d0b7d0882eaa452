"""A target's passes as CUDA graphs. A pass over the few rows of a round is a thousand kernels, which a GPU finishes
sooner than Python can ask for them; recorded once, they are asked for together."""

import logging
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from lantern.models.cache import KVCache
from lantern.types import Forward

log = logging.getLogger(__name__)
EXTENT = 64  # slots by which the part of the cache that passes look at grows: each extent has a recording of its own
MET = 3  # passes of a shape before it is recorded: a batch that drains has many shapes, none of them for long

Run = Callable[[Tensor, Tensor, Tensor], Forward]  # tokens, cells, mask of a pass over the cache's placed slots
Record = Callable[[Callable[[], Forward]], tuple[Callable[[], None], Forward]]  # -> its repetition, what it writes


class PassGraphs:
    """Recordings of one cache's passes, by shape."""

    def __init__(self, run: Run, record: Record | None = None) -> None:
        """record: a test's, for devices without graphs."""
        self._run, self._record = run, record or _Recorder()
        self._met: Counter[tuple] = Counter()
        self._made: dict[tuple, tuple[list[Tensor], Callable[[], None], Forward, Tensor]] = {}
        self._place: int | None = None  # where the cache lies

    def __call__(self, cache: KVCache, tokens: Tensor, cells: Tensor, mask: Tensor, *settings: object) -> Forward:
        """tokens, cells [B, N], mask [B R, 1, N, S], and what else the run depends on -> what it makes of them."""
        if cache.store.data_ptr() != self._place:
            self._place = cache.store.data_ptr()
            self._made.clear()
            self._met.clear()
        key = (cache.store.shape, cache.store.stride(), tokens.shape, mask.shape, *settings)
        given = (tokens, cells, mask, cache.placed)
        self._met[key] += 1
        if key not in self._made:
            if self._record is None or self._met[key] < MET:
                return self._run(tokens, cells, mask)
            try:
                self._made[key] = self._recorded(cache, given)
            except RuntimeError as error:
                log.warning("passes cannot be recorded as CUDA graphs, kernels are launched one by one: %s", error)
                self._record, cache.placed = None, given[-1]
                return self._run(tokens, cells, mask)
        read, replay, written, _ = self._made[key]
        for kept, fresh in zip(read, given, strict=True):
            kept.copy_(fresh)
        replay()
        return Forward(*(part.clone() for part in written))  # the next pass writes there again

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

    def __call__(self, run: Callable[[], Forward]) -> tuple[Callable[[], None], Forward]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what libraries set up at their first call on a stream cannot be recorded
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            written = run()
        return graph.replay, written
