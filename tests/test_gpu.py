"""The engine on a GPU: recorded passes against launched ones, and methods against plain decoding. The same tests run on
the processor, where nothing is recorded, so that they still hold when there is a GPU."""

from copy import copy
from types import SimpleNamespace

import pytest
import torch
from support.recorded_decoding import DRAFTERS, decode
from support.toy import tiny_target

from lantern.engine.graphs import EagerPasses
from lantern.models.llamagen.target import LlamaGenTarget

needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
needs_two = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs")]
DEVICES = ["cpu", pytest.param("cuda:0", marks=needs_gpu), pytest.param("cuda:1", marks=needs_two)]


def target_on(device: str, dtype: torch.dtype = torch.float32) -> LlamaGenTarget:
    here = tiny_target(dtype=dtype)
    images = SimpleNamespace(codebook=here.codebook.to(device), decode=lambda tokens: tokens)
    return LlamaGenTarget(here.transformer.to(device), here.conditioner, images)


def launched(target: LlamaGenTarget) -> LlamaGenTarget:
    """With passes that are launched kernel by kernel instead of recorded; shares all else."""
    target = copy(target)
    target.passes = EagerPasses()
    return target


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if name != "plain"])
@pytest.mark.parametrize("device", DEVICES)
def test_trees_and_windows_make_the_tokens_of_plain_decoding(device, drafter, batch_size):
    """Catches masks, positions or commits that differ on the device, whose kernels are others than the processor's."""
    expected = decode(launched(target_on(device)), "plain", 1)
    assert torch.equal(decode(target_on(device), drafter, batch_size), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("drafter", ["plain", "static"])
@pytest.mark.parametrize("device", DEVICES)
def test_recorded_passes_make_the_tokens_of_launched_ones(device, drafter, dtype):
    """Catches graphs that are empty, stale, or off in silence. In bfloat16 recorded passes, which read longer extents,
    may round differently and flip a token, after which an image goes another way."""
    target = target_on(device, dtype)
    same = (decode(target, drafter, 1) == decode(launched(target), drafter, 1)).float().mean()
    assert same == 1 if dtype == torch.float32 else same > 0.5
    assert target.passes.cuda_graphs is (True if "cuda" in device else None)


@pytest.mark.parametrize("device", DEVICES)
def test_passes_are_recorded_again_after_their_memory_was_released(device):
    """Catches a pool that is used again after its last graph has gone, which torch refuses."""
    target = target_on(device)
    tokens = []
    for _ in range(2):
        tokens.append(decode(target, "static", 3))
        target.release()
    assert torch.equal(*tokens)
    assert target.passes.cuda_graphs is (True if "cuda" in device else None)
