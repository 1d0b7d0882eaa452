"""How one recording is made and checked, and what happens where it cannot be."""

import logging
import re

import pytest
import torch
from support.recorded_decoding import decode, recorded_target
from support.recorded_passes import Recorder
from support.toy import tiny_target


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


@pytest.mark.parametrize(
    "error", [ALLOCATOR, pytest.param(DRIVER, marks=pytest.mark.full)], ids=["allocator", "driver"]
)
def test_a_lack_of_memory_ends_one_recording_and_not_all(error, caplog):
    """Catches graphs that are off for good, in silence, after a moment of full memory."""
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
