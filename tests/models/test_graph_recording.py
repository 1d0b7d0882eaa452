"""How one recording is made and checked, and what happens where it cannot be."""

import gc
import logging
import re
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from support.recorded_decoding import decode, recorded_target
from support.recorded_passes import Recorder
from support.toy import tiny_target

from lantern.engine.graphs import MIN_PASSES, CudaRecorder, PassGraphs


@dataclass(eq=False)
class FakeGraph:
    replay: Callable[[], None]


class FakeCuda:
    """The parts of torch.cuda that capture graphs, with a current device and one capture stream a device. failing: the
    end of a capture raises, as it does where the capture has failed."""

    def __init__(self, failing: bool = False) -> None:
        self.current, self.log, self.failing = 0, [], failing
        self.handles, self.pools = count(), []  # a capture's pool each
        self.streams = {device: self.Stream(device) for device in (0, 1)}  # the current ones

    @contextmanager
    def device(self, device: torch.device):
        before, self.current = self.current, device.index
        yield
        self.current = before

    @contextmanager
    def stream(self, stream):
        self.log.append(("warm-up", stream.device))
        before = self.current_stream()
        self.set_stream(stream)
        yield
        self.set_stream(before)

    @contextmanager
    def graph(self, graph, pool, stream=None):
        self.pools.append(pool)
        before, stream = self.current_stream(), stream or self.Stream(0)
        self.log.append(("capture", stream.device))
        self.set_stream(stream)
        yield
        if self.failing:
            raise RuntimeError("the capture has failed")
        self.set_stream(before)

    def Stream(self, device=None):  # noqa: N802  (torch's name)
        return SimpleNamespace(device=self.current if device is None else device, wait_stream=lambda other: None)

    def current_stream(self):
        return self.streams[self.current]

    def set_stream(self, stream):
        self.streams[stream.device] = stream

    def CUDAGraph(self):  # noqa: N802
        return FakeGraph(lambda: self.log.append(("replay", self.current)))

    def install(self, monkeypatch) -> "FakeCuda":
        for name in ("device", "stream", "graph", "Stream", "current_stream", "set_stream", "CUDAGraph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(self.handles)))
        return self


def test_graphs_share_a_pool_as_long_as_one_of_them_is_left(monkeypatch):
    """Catches a pool that is used again after its last graph has gone, which torch refuses: no pass of the next setting
    of a sweep would be recorded."""
    cuda = FakeCuda().install(monkeypatch)
    recorder = CudaRecorder(torch.device("cuda", 0))
    first, second = (recorder(lambda: None) for _ in range(2))
    del first
    third = recorder(lambda: None)
    assert cuda.pools == [cuda.pools[0]] * 3
    del second, third
    gc.collect()
    recorder(lambda: None)
    assert cuda.pools[3] != cuda.pools[0]


def test_capture_warm_up_and_replay_are_on_the_caches_own_device(monkeypatch):
    """Catches empty graphs on cuda:1, captured and replayed where nothing is computed, and a capture stream that
    belongs to the current device."""
    cuda = FakeCuda().install(monkeypatch)
    recorder = CudaRecorder(torch.device("cuda", 1))
    recorder(lambda: cuda.log.append(("run", cuda.current)))()
    steps = ["warm-up", "run", "capture", "run", "replay"]
    assert cuda.log == [(step, 1) for step in steps]
    assert cuda.current == 0


@pytest.mark.parametrize("failing", [False, True])
def test_a_recording_leaves_the_stream_that_was_current(failing, monkeypatch):
    """Catches a failed capture behind which all later work runs on the capture's stream."""
    cuda = FakeCuda(failing).install(monkeypatch)
    before = dict(cuda.streams)
    with pytest.raises(RuntimeError) if failing else nullcontext():
        CudaRecorder(torch.device("cuda", 1))(lambda: None)
    assert cuda.streams == before


@pytest.mark.parametrize("error", [0.5, None])
def test_a_recording_that_computes_something_else_is_refused(error, caplog):
    """Catches an empty graph, whose stale outputs would become tokens, and one that is wrong by half of a logit."""

    def records(run):
        def replay():
            if error is not None:
                run()
                for part in target.passes._buffers.values():
                    if part.shape[-1] == target.vocab_size:
                        part.view(-1)[0] += error * part.abs().max()

        return replay

    target = recorded_target(records)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(decode(target, "static", 3), decode(tiny_target(), "static", 3))
    assert re.search("output [0-9] differs from the pass's own", caplog.text)
    assert target.passes.cuda_graphs is False


def test_a_right_recording_passes_the_check():
    recorder = Recorder()
    target = recorded_target(recorder)
    assert torch.equal(decode(target, "static", 3), decode(tiny_target(), "static", 3))
    assert target.passes.cuda_graphs is True
    assert recorder.made


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), torch.AcceleratorError("CUDA error: out of memory")]
)
def test_a_lack_of_memory_ends_one_recording_and_not_all(error, caplog):
    """Catches graphs that are off for good, in silence, after a moment of full memory, be it the allocator or the
    driver that lacks it."""
    recorder, failures = Recorder(), [error]

    def records(run):
        if failures:
            raise failures.pop()
        return recorder(run)

    target = recorded_target(records)
    with caplog.at_level(logging.WARNING):
        for drafter in ("static", "plain"):  # in one cache's memory
            assert torch.equal(decode(target, drafter, 2), decode(tiny_target(), drafter, 2))
    assert caplog.text.count("memory is lacking") == 1
    assert recorder.made
    assert target.passes.cuda_graphs is False  # for the rows of this cache
    target.release()
    assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert target.passes.cuda_graphs is True


def test_another_error_of_the_device_ends_all_recordings(caplog):
    """Catches every failure of the device taken for a lack of memory."""

    def records(run):
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")

    target = recorded_target(records)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert caplog.text.count("passes cannot be recorded") == 1


def test_a_lack_of_memory_in_the_pass_itself_is_not_caught():
    """Catches a warning in place of an error that the user must act on."""
    passes = PassGraphs(lambda run: run())
    target = tiny_target()
    target.allocate(1, 1)

    def run(tokens):
        raise torch.OutOfMemoryError("CUDA out of memory")

    for _ in range(MIN_PASSES + 1):
        with pytest.raises(torch.OutOfMemoryError):
            passes("target", run, torch.zeros(1), store=target.cache.store)
