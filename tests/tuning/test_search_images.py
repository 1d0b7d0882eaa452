"""The images that tree=auto learns from are none of those that are timed with the tree it finds."""

from pathlib import Path

import pytest
from support.paths import ROOT
from support.simulated_machine import Decoder, Machine

from lantern.data.prompts import Batch, load_prompts, search_prompts, split_prompts
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
