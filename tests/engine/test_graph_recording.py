"""How one recording is made and checked, and what happens where it cannot be."""

import logging
import re

import pytest
import torch
from support.recorded_decoding import decode, recorded_target
from support.recorded_passes import Recorder
from support.toy import tiny_target

from lantern.engine.graphs import MIN_PASSES, PassGraphs


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


ALLOCATOR, DRIVER = torch.OutOfMemoryError("CUDA out of memory"), torch.AcceleratorError("CUDA error: out of memory")


def failing_first(recorder: Recorder, error: Exception):
    """A recorder whose first recording raises an error."""
    failures = [error]

    def records(run):
        if failures:
            raise failures.pop()
        return recorder(run)

    return records


@pytest.mark.parametrize(
    "error", [ALLOCATOR, pytest.param(DRIVER, marks=pytest.mark.full)], ids=["allocator", "driver"]
)
def test_a_lack_of_memory_ends_one_recording_and_not_all(error, caplog):
    """Catches graphs that are off for good, in silence, after a moment of full memory."""
    recorder = Recorder()
    target = recorded_target(failing_first(recorder, error))
    with caplog.at_level(logging.WARNING):
        for drafter in ("static", "plain"):  # in one cache's memory
            assert torch.equal(decode(target, drafter, 2), decode(tiny_target(), drafter, 2))
    assert caplog.text.count("for lack of memory") == 1
    assert recorder.made
    assert target.passes.cuda_graphs is False  # for the rows of this cache
    target.release()
    assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert target.passes.cuda_graphs is True


CAPTURING = torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")


def test_another_error_refuses_its_shape_alone_and_recording_begins_anew_after_a_release(caplog):
    """Catches one pass that reads from the device, and with it every later setting of a sweep launched kernel by
    kernel; and a row that hides it, since its images have moved the cache after it was timed."""
    recorder = Recorder()
    target = recorded_target(failing_first(recorder, CAPTURING))
    with caplog.at_level(logging.WARNING):
        assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert caplog.text.count("is not recorded as a CUDA graph after an error") == 1
    assert recorder.made
    target.allocate(8, 64)
    assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert target.passes.cuda_graphs is False
    target.release()
    assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert target.passes.cuda_graphs is True


def test_every_shape_may_fail_and_one_warning_says_so(caplog):
    """Catches a warning for each of hundreds of shapes, and a failure that spoils the pass's own result."""

    def records(run):
        raise CAPTURING

    target = recorded_target(records)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
    assert len(caplog.records) == 1


def test_an_error_that_leaves_the_device_unusable_stops_the_run():
    """Catches a broken context taken for a shape that cannot be recorded: every later pass would fail."""
    broken, fault = [], torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def run(x):
        if broken:
            raise fault
        return (x + 1,)

    def records(run):
        broken.append(True)
        raise fault

    passes = PassGraphs(records)
    for _ in range(MIN_PASSES - 1):
        passes("pass", run, torch.zeros(3))
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        passes("pass", run, torch.zeros(3))


FAULTS = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.03}  # of the largest number


@pytest.mark.parametrize("dtype", FAULTS, ids=str)
@pytest.mark.parametrize("is_fault", [False, True])
def test_a_replay_may_differ_by_rounding_and_no_more(dtype, is_fault):
    """Catches a tolerance in which a wrong recording hides, a third of the largest logit in bfloat16; and one that
    refuses kernels which add in any order."""
    error = FAULTS[dtype] if is_fault else torch.finfo(dtype).eps

    def records(run):
        def replay():
            run()
            output(passes)[7] += 2 * error  # the largest number is 2

        return replay

    passes = PassGraphs(records)
    for _ in range(MIN_PASSES):
        passes("pass", lambda x: (x * 2,), torch.linspace(-1, 1, 64, dtype=dtype))
    assert passes.cuda_graphs is not is_fault


def output(passes: PassGraphs) -> torch.Tensor:
    """The memory that the recording writes."""
    return next(buffer for (use, *_), buffer in passes._buffers.items() if use == "written")
