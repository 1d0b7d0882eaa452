"""Passes as recordings, on a stand-in for CUDA graphs."""

import logging
from functools import partial

import pytest
import torch
from support.recorded_passes import Recorder, place
from support.toy import PROMPTS, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, generate
from lantern.drafters.jacobi.jacobi import Jacobi, coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.models.graphs import MIN_PASSES, PassGraphs
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree
from lantern.types import TreeTopology
from lantern.verification.shared_noise import SharedNoise

SEEDS = list(range(len(PROMPTS)))
STATIC = StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])


def eagle(tree, target):
    return tiny_eagle(target, tree, Sampling())


DRAFTERS = {
    "plain": lambda target: NoDrafter(),
    "static": partial(eagle, STATIC),
    "eagle2": partial(eagle, Eagle2Tree(6, 3, 3)),
    "jacobi": lambda target: Jacobi(target, 4, Nearest(), coupled),
}


def decode(target, drafter: str, batch_size: int) -> torch.Tensor:
    parts = (target, DRAFTERS[drafter](target), SharedNoise(), Exact(), Sampling(cfg_scale=target.cfg_scale))
    return generate(DecodingSetup(*parts), PROMPTS, SEEDS, batch_size).tokens


def recorded_target(recorder) -> object:
    target = tiny_target()
    target.graphs = PassGraphs(recorder)
    return target


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_recorded_passes_make_the_same_images(drafter, batch_size):
    """Catches a number of one round that a recording holds on to, such as where rows stand; memory that is written
    elsewhere the next time, or given up; values asked of the device."""
    recorder = Recorder()
    target = recorded_target(recorder)
    for _ in range(4):  # from the second time on, on the memory of the first
        assert torch.equal(decode(target, drafter, batch_size), decode(tiny_target(), drafter, batch_size))
    assert sum(recording.replays for recording in recorder.made) > 4 * MIN_PASSES * len(recorder.made)


def test_a_recording_is_of_one_guidance_scale():
    recorder = Recorder()
    target = recorded_target(recorder)
    for cfg_scale in (2.0, 5.0):
        configured = target.configured(cfg_scale)
        assert torch.equal(decode(configured, "plain", 2), decode(tiny_target(cfg_scale), "plain", 2))
    assert len(recorder.made) > 1


def test_passes_that_cannot_be_recorded_are_run_as_they_are(caplog):
    """Catches a run that dies, or goes on silently: what it measures is not what graphs would."""

    def rejects(run):
        raise RuntimeError("no graphs here")

    with caplog.at_level(logging.WARNING):
        assert torch.equal(decode(recorded_target(rejects), "static", 3), decode(tiny_target(), "static", 3))
    assert [record.message for record in caplog.records].count(
        "passes cannot be recorded as CUDA graphs, kernels are launched one by one: no graphs here"
    ) == 1


def test_a_recording_ends_with_its_cache():
    """Catches passes that write to memory which has been given back."""
    recorder = Recorder()
    target = recorded_target(recorder)
    for _ in range(2):
        assert torch.equal(decode(target, "static", 2), decode(tiny_target(), "static", 2))
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
