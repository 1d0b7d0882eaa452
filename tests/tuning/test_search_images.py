"""The images that tree=auto learns from are none of those that are timed with the tree it finds."""

from pathlib import Path

import pytest
import torch
from support.paths import ROOT
from support.simulated_machine import Decoder, Machine
from support.toy import CODES, DIM, tiny_eagle, tiny_target

from lantern.data.prompts import Batch, load_prompts, search_prompts, split_prompts
from lantern.drafters.loading import load_eagle
from lantern.models.checkpoints import save_weights
from lantern.sampling import Sampling
from lantern.trees.static import chain
from lantern.tuning.auto import AutoTree

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


def test_a_drafters_weights_are_read_once_until_they_change(tmp_path):
    """Catches a copy of the weights for every candidate."""
    target = tiny_target(dtype=torch.float32)
    state = tiny_eagle(target, chain(1), Sampling()).network.state_dict()
    config = {"dim": DIM, "num_heads": 2, "hidden_dim": state["feed_forward.w1.weight"].shape[0], "vocab_size": CODES}
    config["target_hash"] = target.weights_hash
    save_weights(tmp_path, state, config)
    first, second = (load_eagle(tmp_path, target, chain(length), Sampling()).network for length in (1, 2))
    assert first is second
    save_weights(tmp_path, {name: 2 * value for name, value in state.items()}, config)
    assert load_eagle(tmp_path, target, chain(1), Sampling()).network is not first
