"""Functions of tensors as CUDA graphs. The few tokens of a round take a thousand kernels, which a GPU finishes faster
than Python launches them; a recorded graph launches them together."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from weakref import WeakSet, WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.types import PADDING, DraftTree

log = logging.getLogger(__name__)
MIN_PASSES = 3  # of a shape in a call of generate() before it is recorded
MAX_RECORDINGS = 256  # kept at once, more than tree=auto has shapes; the least recently replayed one is dropped

Outputs = tuple[Tensor, ...]
Run = Callable[..., Outputs]  # idempotent: running it twice leaves the same state as once
Record = Callable[[Callable[[], None]], Callable[[], None]]  # from a function to one that repeats its kernels


class Key(NamedTuple):
    name: str
    settings: tuple
    shapes: tuple


class Recording(NamedTuple):
    """The pass of one shape. Recordings share the memory of inputs, and of outputs, that have the same shape."""

    read: Outputs
    replay: Callable[[], None]
    written: Outputs


class EagerPasses:
    """Implements lantern.types.PassRunner: launches passes kernel by kernel, at the sizes that they have."""

    has_graphs, nbytes = False, 0

    def __init__(self, cuda_graphs: bool | None = None) -> None:
        self.cuda_graphs = cuda_graphs

    def __call__(
        self, name: str, run: Run, *inputs: Tensor, store: Tensor | None = None, settings: tuple = ()
    ) -> Outputs:
        return run(*inputs)

    def size(self, count: int, largest: int) -> int:
        return count

    def pad(self, tree: DraftTree, largest: int) -> DraftTree:
        return tree

    def begin(self) -> None: ...
    def clear(self) -> None: ...


class PassGraphs:
    """A lantern.types.PassRunner: CUDA graphs of a target's and drafter's passes and verification, one a shape."""

    has_graphs = True

    def __init__(self, record: Record) -> None:
        self._record = record
        self._passes: Counter[Key] = Counter()
        self._made: dict[Key, Recording] = {}  # the one replayed last at the end
        self._refused: set[Key] = set()  # shapes that could not be recorded
        self._has_refused = False  # any since clear(), also of a cache that has moved since
        self._addresses: dict[str, int] = {}  # of the caches, by name of the pass
        self._buffers: WeakValueDictionary[Hashable, Tensor] = WeakValueDictionary()  # of inputs and outputs

    @property
    def cuda_graphs(self) -> bool:
        """Whether every shape since clear() could be recorded."""
        return not self._has_refused

    def size(self, count: int, largest: int) -> int:
        """`count` rows or nodes, rounded up to a power of two that is at most half of `largest`, or else to `largest`:
        all sizes together are at most twice the largest."""
        padded = 1 << (count - 1).bit_length()
        return padded if 2 * padded <= largest else largest

    def pad(self, tree: DraftTree, largest: int) -> DraftTree:
        missing = self.size(tree.tokens.shape[1], largest) - tree.tokens.shape[1]
        if not missing:
            return tree
        trailing = [0, 0] * (tree.tokens.dim() - 2)
        tokens = F.pad(tree.tokens, (*trailing, 0, missing))
        parents = F.pad(tree.parents, (0, missing), value=PADDING)
        laws = None if tree.draft_probs is None else F.pad(tree.draft_probs, (0, 0, 0, missing))
        return DraftTree(tokens, parents, laws, width=tree.width)

    @property
    def count(self) -> int:
        return len(self._made)

    @property
    def nbytes(self) -> int:
        """Of all recordings' inputs and outputs; the memory of everything between them is shared by all."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def begin(self) -> None:
        """Counts passes anew, so that shapes met only where images end are not recorded in a later, timed image."""
        self._passes.clear()

    def clear(self) -> None:
        """Drops all recordings, and with them the weights and tables of drafters and rules that they read in place."""
        self._passes.clear()
        self._made.clear()
        self._refused.clear()
        self._has_refused = False
        self._addresses.clear()

    def __call__(
        self, name: str, run: Run, *inputs: Tensor, store: Tensor | None = None, settings: tuple = ()
    ) -> Outputs:
        """Returns run(*inputs). store: the cache that run reads and writes in place; passes of one name have one at a
        time. settings: everything else that the result depends on, and the owners of all that run reads in place."""
        if store is not None:
            self._follow(name, store.data_ptr())
            settings = (*settings, store.shape, store.stride())
        key = Key(name, settings, tuple((part.shape, part.dtype) for part in inputs))
        recording = self._made.pop(key, None)
        if recording is None:
            return self._new(key, run, inputs)
        self._made[key] = recording
        copy(recording.read, inputs)
        recording.replay()
        return tuple(part.clone() for part in recording.written)  # the next pass overwrites them

    def _follow(self, name: str, address: int) -> None:
        """Drops the recordings of a cache that has moved, since its old memory has been freed."""
        if self._addresses.get(name) != address:
            self._addresses[name] = address
            self._made = {key: made for key, made in self._made.items() if key.name != name}
            self._refused = {key for key in self._refused if key.name != name}

    def _new(self, key: Key, run: Run, inputs: Outputs) -> Outputs:
        """Runs the pass without a graph, and records it unless its shape is still rare or was refused. An error refuses
        only this shape, until the cache moves; if memory was lacking, all other recordings are dropped."""
        result = run(*inputs)
        self._passes[key] += 1
        if key in self._refused or self._passes[key] < MIN_PASSES:
            return result
        try:
            self._make_room(MAX_RECORDINGS - 1)
            self._made[key] = self._recorded(run, inputs, result)
        except RuntimeError as error:
            reason = "for lack of memory" if lacks_memory(error) else "after an error"
            level = logging.DEBUG if self._has_refused else logging.WARNING  # there may be hundreds of shapes
            log.log(level, "a pass is not recorded as a CUDA graph %s, kernels are launched alone: %s", reason, error)
            self._refused.add(key)
            self._has_refused = True
            if lacks_memory(error):
                self._make_room(0)
                return result
            return run(*inputs)  # raises where the error has left the device unusable: then everything stops
        return result

    def _make_room(self, count: int) -> None:
        for key in list(self._made)[: max(0, len(self._made) - count)]:
            del self._made[key]
            self._passes.pop(key, None)

    def _recorded(self, run: Run, inputs: Outputs, result: Outputs) -> Recording:
        """Records the pass and checks one replay against a second run on the recording's own memory, which uses the
        same kernels: a graph captured on another device or stream is empty. The first run may have used other kernels,
        as the strides of its inputs may differ."""
        read, written = self._like("read", inputs), self._like("written", result)
        copy(read, inputs)
        again = run(*read)
        require_equal("a second run", again, result, lambda eps: 4 * eps**0.5)  # maybe of other kernels
        replay = self._record(lambda: copy(written, run(*read)))
        for part, wanted in zip(written, again, strict=True):
            part.fill_(torch.nan) if part.is_floating_point() else part.copy_(~wanted)
        replay()
        require_equal("its replay", written, again, lambda eps: max(4 * eps, 1e-5))  # a few add in any order
        return Recording(read, replay, written)

    def _like(self, use: str, parts: Outputs) -> Outputs:
        """Buffers of these shapes, shared with other recordings that have such shapes."""
        found, seen = [], Counter[Hashable]()
        for part in parts:
            kind = use, part.shape, part.dtype
            seen[kind] += 1  # parts of one shape are told apart by their order
            buffer = self._buffers.get((*kind, seen[kind]))
            if buffer is None:
                buffer = torch.empty(part.shape, dtype=part.dtype, device=part.device)
                self._buffers[(*kind, seen[kind])] = buffer
            found.append(buffer)
        return tuple(found)


def with_tensors(tree: DraftTree, tokens: Tensor, parents: Tensor) -> DraftTree:
    """The tree with these tensors; the same object, with its cached properties, if they already are its own."""
    is_own = tokens is tree.tokens and parents is tree.parents
    return tree if is_own else replace(tree, tokens=tokens, parents=parents, draft_probs=None)


def lacks_memory(error: RuntimeError) -> bool:
    """Whether torch's allocator ran out of memory, or the driver did, as when it builds a graph."""
    is_driver = isinstance(error, torch.AcceleratorError)
    return isinstance(error, torch.OutOfMemoryError) or (is_driver and "out of memory" in str(error))


def copy(goals: Outputs, sources: Outputs) -> None:
    for goal, source in zip(goals, sources, strict=True):
        goal.copy_(source)


def require_equal(name: str, outputs: Outputs, of_pass: Outputs, rounding: Callable[[float], float]) -> None:
    """RuntimeError where a recorded pass does not compute what the pass itself computes. rounding: maps
    a dtype's eps to the allowed difference of floats, relative to the largest one."""
    for index, (found, wanted) in enumerate(zip(outputs, of_pass, strict=True)):
        if not wanted.is_floating_point():
            difference, most, largest = float((found != wanted).sum()), 0.0, 0.0
        else:
            difference = float((found - wanted).abs().masked_fill(found == wanted, 0).max())  # infinities are equal
            largest = float(wanted.abs().masked_fill(wanted.isinf(), 0).max())
            most = rounding(torch.finfo(wanted.dtype).eps) * largest
        if not difference <= most:  # nan: nothing was written
            raise RuntimeError(f"output {index} differs from the pass's own by {difference:g} of {largest:g}: {name}")


class CudaRecorder:
    """Records CUDA graphs on one device, current or not. They share one memory pool, since only one of them runs at a
    time. When no graph is left, the next one starts a new pool: torch refuses a pool whose graphs are all gone."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        self._graphs = WeakSet[torch.cuda.CUDAGraph]()
        self._stream: torch.cuda.Stream | None = None  # one for all: the pool reuses memory on one stream alone

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        with torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            stream = self._stream = self._stream or torch.cuda.Stream()
            stream.wait_stream(before)
            with torch.cuda.stream(stream):  # what libraries set up at their first call on a stream cannot be recorded
                run()
            before.wait_stream(stream)
            if not self._graphs:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=stream):  # torch's own is of the first device
                    run()
            finally:  # if the capture fails, so does ending it, and torch stays on its stream
                torch.cuda.set_stream(before)
        self._graphs.add(graph)
        return partial(self._replay, graph)

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.device(self._device):
            graph.replay()
