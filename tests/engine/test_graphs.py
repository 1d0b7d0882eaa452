"""Passes as recordings, on a stand-in for CUDA graphs."""

import gc
import weakref
from functools import cache

import pytest
import torch
from support import toy
from support.recorded_decoding import DRAFTERS, STATIC, decode, eagle, recorded_target
from support.recorded_passes import Recorder, place
from support.toy import DIM, PROMPTS, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern_pp import LanternPP
from lantern.engine import graphs
from lantern.engine.cache import EXTENT, extent_of
from lantern.engine.graphs import MIN_PASSES, PassGraphs
from lantern.sampling import Sampling
from lantern.types import TreeTopology


@cache
def launched(drafter: str, batch_size: int, cfg_scale: float = 2.0) -> torch.Tensor:
    """Tokens of passes that are not recorded."""
    return decode(tiny_target(cfg_scale), drafter, batch_size)


FAST = "plain", "eagle2", "refined_branches"


@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("drafter", [n if n in FAST else pytest.param(n, marks=pytest.mark.full) for n in DRAFTERS])
def test_recorded_passes_make_the_same_images(drafter, batch_size):
    """Catches a number of one round that a recording holds on to, and memory that is written elsewhere next time."""
    recorder = Recorder()
    target = recorded_target(recorder)
    for _ in range(3):  # from the second time on, on the memory of the first
        assert torch.equal(decode(target, drafter, batch_size), launched(drafter, batch_size))
    assert sum(recording.replays for recording in recorder.made) > MIN_PASSES * len(recorder.made)


def test_a_recording_is_of_one_guidance_scale():
    recorder = Recorder()
    target = recorded_target(recorder)
    for cfg_scale in (2.0, 5.0):
        configured = target.configured(cfg_scale)
        assert torch.equal(decode(configured, "plain", 2), launched("plain", 2, cfg_scale))
    assert len(recorder.made) > 1


@pytest.mark.full
def test_a_recording_is_of_one_choice_of_layers():
    """Catches plain decoding that goes on handing out layers, and a drafter that reads the recording of another."""
    recorder = Recorder()
    target = recorded_target(recorder)
    for drafter in ("static", "eagle3", "plain", "static", "eagle3"):
        assert torch.equal(decode(target, drafter, 2), launched(drafter, 2))
    target.allocate(1, 1)
    assert target.prefill(PROMPTS[:1], torch.tensor([0])).features.shape[-1] == DIM


def test_a_recording_is_of_one_rule():
    """Catches picks that follow the rule, or the temperature, of another setting on the same target."""
    recorder, targets = Recorder(), [tiny_target(), tiny_target()]
    targets[0].passes, found = PassGraphs(recorder), [[], []]
    relaxed = LanternPP(targets[0].codebook, 20, 9.0)
    settings = [(Exact(), Sampling()), (relaxed, Sampling()), (Exact(), Sampling(top_p=0.3))]
    for target, made in zip(targets, found, strict=True):
        for rule, sampling in settings:
            made.append(toy.decode(target, eagle(STATIC, target), sampling, 2, rule=rule, prompts=PROMPTS[:4]).tokens)
    assert all(torch.equal(recorded, launched) for recorded, launched in zip(*found, strict=True))
    assert len({tuple(tokens.flatten().tolist()) for tokens in found[0]}) == len(settings)
    assert sum(recording.replays for recording in recorder.made) > 2 * len(recorder.made)


def test_tokens_behind_an_end_are_counted_once_an_image():
    """Catches those of the copies that pad a draining batch."""
    targets = tiny_target(), recorded_target(Recorder())
    for target in targets:
        target.ends = torch.arange(2)
    made = [toy.decode(target, eagle(STATIC, target), Sampling(), 4, prompts=PROMPTS[:4]) for target in targets]
    assert made[0].unread == made[1].unread > 0


def test_a_recording_ends_with_its_cache():
    """Catches passes that write to memory which has been given back."""
    recorder = Recorder()
    target = recorded_target(recorder)
    for _ in range(2):
        assert torch.equal(decode(target, "static", 2), launched("static", 2))
        target.release()


def test_what_a_pass_returned_is_not_written_again():
    recorder = Recorder()
    target = recorded_target(recorder)
    target.allocate(1, 1)
    target.prefill(PROMPTS[:1], torch.tensor([0]))
    root = TreeTopology.chain(0, torch.device("cpu")).tree(torch.tensor([[3]]))
    passes = [target.verify(root) for _ in range(MIN_PASSES + 2)]
    assert recorder.made[0].replays == 3
    assert len({place(part) for forward in passes for part in forward}) == 2 * len(passes)


def test_a_long_image_has_few_extents_and_reads_little_more():
    """Catches more than a hundred recordings for a long image."""
    found = [extent_of(slots) for slots in range(1, 5000)]
    assert len(set(found[: 120 + 64 * 64 + 60])) <= 24
    assert found == sorted(found)
    for slots in range(1, 5000):
        assert slots <= extent_of(slots) <= max(slots + EXTENT, 1.26 * slots)


def test_sizes_are_few_and_hold_together_twice_the_largest():
    size_of = PassGraphs(Recorder()).size
    for largest in range(1, 130):
        sizes = {size_of(size, largest) for size in range(1, largest + 1)}
        assert all(size <= size_of(size, largest) <= largest for size in range(1, largest + 1))
        assert sum(sizes) <= 2 * largest
        assert len(sizes) <= 8


@pytest.mark.full
def test_the_number_of_recordings_is_bounded(monkeypatch):
    """Catches recordings of every shape that a draining batch ever had; the least recently replayed one is dropped."""
    monkeypatch.setattr(graphs, "MAX_RECORDINGS", 2)
    recorder = Recorder()
    target = recorded_target(recorder)
    for drafter in ("static", "plain", "jacobi", "static"):
        assert torch.equal(decode(target, drafter, 2), launched(drafter, 2))
    assert len(recorder.made) > 3
    assert len(target.passes._made) <= 2


@pytest.mark.full
def test_released_memory_holds_no_recording_and_none_of_what_it_reads():
    """Catches the weights of all drafters of a sweep kept on the GPU by recordings that are never replayed again."""
    recorder = Recorder()
    target = recorded_target(recorder)
    drafter = tiny_eagle(target, STATIC, Sampling())
    network = weakref.ref(drafter.network)
    toy.decode(target, drafter, Sampling(), 2)
    assert target.passes.count > 0
    del drafter
    target.release()
    gc.collect()
    assert target.passes.count == 0
    assert network() is None
