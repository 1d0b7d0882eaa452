"""The images that tree=auto learns from are none of those that are timed with the tree it finds."""

from functools import partial
from pathlib import Path

import pytest
import torch
from support.paths import ROOT
from support.simulated_machine import Decoder, Machine
from support.toy import CODES, DIM, PROMPTS, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.data.prompts import Batch, load_prompts, search_prompts, split_prompts
from lantern.drafters import loading
from lantern.drafters.none import NoDrafter
from lantern.models.checkpoints import save_weights
from lantern.pipeline import Pipeline, PipelineFactory
from lantern.sampling import Sampling
from lantern.trees.static import chain
from lantern.tuning.auto import AutoTree
from lantern.verification import SharedNoise

FOLDER = ROOT / "data" / "prompts"


@pytest.mark.parametrize("split", ["dev", "test", "all"])
def test_the_search_reads_prompts_other_than_those_timed(split):
    """Catches a tree that is chosen on the prompts it is reported on."""
    timed = split_prompts(load_prompts("scenes", FOLDER), split)[:8]
    assert not set(search_prompts("scenes", split, FOLDER)[:8]) & set(timed)


@pytest.mark.parametrize("split", ["all", "dev", "test"])
def test_a_list_without_other_prompts_is_searched_on_its_own(split):
    only = split_prompts(load_prompts("scenes", FOLDER), split)[0]
    assert search_prompts([only], split, Path()) == [only]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_search_decodes_with_seeds_of_its_own(batch_size):
    """Catches an image of the search that is timed afterwards, where the prompts are few."""
    seen: set[int] = set()

    class Spy(Decoder):
        def generate(self, prompts, seeds, size):
            seen.update(seeds)
            return super().generate(prompts, seeds, size)

        def first_rounds(self, prompts, seeds, count):
            seen.update(seeds)
            return super().first_rounds(prompts, seeds, count)

    class SeedMachine(Machine):
        def __call__(self, shape):
            return Spy(self, shape)

    AutoTree(["a"], batch_size).resolve(SeedMachine(1.0, 0.01, 0.01))
    timed = {image for seed in range(50) for image in Batch.cycle(["a"], 8, seed).seeds}
    assert seen
    assert not seen & timed


@pytest.mark.parametrize(("batch_size", "wanted"), [(1, ["a", "b", "c"]), (2, ["ab", "ca"]), (4, ["abca", "bcab"])])
def test_each_batch_has_prompts_of_its_own(batch_size, wanted):
    """Catches candidates that are all timed on the first prompt alone."""
    batches = AutoTree(["a", "b", "c"], batch_size)._batches()
    assert ["".join(batch.prompts) for batch in batches] == wanted


def test_a_drafters_weights_are_read_once_in_a_search(tmp_path, monkeypatch):
    """Catches a copy of the weights for every candidate."""
    target, read = tiny_target(dtype=torch.float32), []
    network = tiny_eagle(target, chain(1), Sampling()).network
    config = {"dim": DIM, "num_heads": 2, "hidden_dim": network.feed_forward.w1.out_features, "vocab_size": CODES}
    save_weights(tmp_path, network.state_dict(), config | {"target_hash": target.weights_hash})
    load = loading.load_weights
    monkeypatch.setattr(loading, "load_weights", lambda folder: read.append(folder) or load(folder))
    plain = Pipeline(target, NoDrafter(), SharedNoise(), Exact(), Sampling())
    made = PipelineFactory(plain, partial(loading.load_eagle, checkpoint=tmp_path))
    AutoTree(PROMPTS).resolve(made)
    assert read == [tmp_path]
    first, second = (made(chain(length)).drafter for length in (1, 2))
    assert first.network is second.network
    save_weights(
        tmp_path,
        {name: 2 * value for name, value in network.state_dict().items()},
        config | {"target_hash": target.weights_hash},
    )
    assert made(chain(1)).drafter.network is not first.network
    assert len(read) == 3
