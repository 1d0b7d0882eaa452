"""EAGLE-3 in training, whose drafter reads the inputs of three of the target's layers, and the layered recipe, whose
drafter adds them to the target's features: in lessons as in decoding."""

from itertools import product

import pytest
import torch
from support import toy
from support.configs import composed
from support.recipes import shipped
from support.tiny_tasks import MemorySplits, drafter_task, fit

from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.export import write_drafter
from lantern.drafters.loading import load_eagle
from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights
from lantern.sampling import Sampling
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.recipe import Recipe, late, low_middle_high
from lantern.training.tables.features import FeatureTable
from lantern.trees.static import chain


def eagle3(depth: int = 3) -> Recipe:
    return shipped("eagle3", f"recipe.depth={depth}")


def test_the_layers_are_the_published_ones():
    """Of 32 layers EAGLE-3 reads the inputs of 2, 16 and 29. Catches indices beyond a small target."""
    assert low_middle_high(32) == (2, 16, 29)
    assert low_middle_high(12) == (2, 6, 9)
    assert late(12) == (4, 8, 11)
    for choose, count in product((low_middle_high, late), range(1, 40)):
        assert 0 <= min(layers := choose(count)) <= max(layers) < count
        assert list(layers) == sorted(layers)


def decode(drafter: Eagle) -> torch.Tensor:
    found = toy.decode(drafter.target, drafter, drafter.sampling, 2, prompts=["wood", "a ring"], seeds=[1, 2])
    return torch.tensor([done.accepted for done in found.rounds[:3]])


def test_an_exported_drafter_decodes_as_the_trained_one(target, tmp_path):
    """Catches weights saved without the layers they belong to."""
    target = target.configured(2.0)
    task = drafter_task(target, recipe=eagle3())
    fit(task, tmp_path, max_steps=12)
    task.export(tmp_path / "drafter")
    assert load_weights(tmp_path / "drafter")[1]["layers"] == list(low_middle_high(2))
    write_drafter(str(tmp_path / "drafter"), target, str(tmp_path / "copy"))
    own = decode(Eagle(task.network, target, chain(3), Sampling()))
    for folder in ("drafter", "copy"):
        assert torch.equal(decode(load_eagle(tmp_path / folder, target, chain(3), Sampling())), own)


def test_a_drafter_is_trained_further_by_a_recipe_of_its_own_kind(target, tmp_path):
    """Catches a drafter of features that is fed layers."""
    drafter_task(target).export(tmp_path / "features")
    drafter_task(target, recipe=eagle3()).export(tmp_path / "layers")

    def further(folder: str, recipe: Recipe | None = None) -> DrafterTask:
        return drafter_task(target, recipe=recipe or shipped("lk"), start_from=str(tmp_path / folder))

    assert further("layers", eagle3()).network.reads.layers == low_middle_high(2)
    for folder, recipe in (("layers", None), ("features", eagle3()), ("layers", shipped("layered"))):
        with pytest.raises(LanternError, match=r"reads other layers; give the recipe that trained it"):
            further(folder, recipe)


@torch.no_grad()
def test_a_drafter_of_features_goes_on_from_where_it_was_with_layers_added(target, tmp_path):
    """Catches a map that starts at random, one that the gradient does not reach, and a drafter loaded as EAGLE-3's."""
    plain, recipe = drafter_task(target), shipped("layered")
    plain.export(tmp_path / "plain")
    task = drafter_task(target, recipe=recipe, start_from=str(tmp_path / "plain"))
    batch = torch.utils.data.default_collate(list(MemorySplits().split("train"))[:2])

    def predicted(task: DrafterTask) -> torch.Tensor:
        return torch.stack(list(task._passes(task._pairs(batch), 2)))

    assert torch.equal(predicted(task), predicted(plain))
    with torch.enable_grad():
        fit(task, tmp_path, max_steps=3)
    assert task.network.reads.fc.weight.any()
    task.export(tmp_path / "added")
    assert load_weights(tmp_path / "added")[1]["adds_layers"]
    again = drafter_task(target, recipe=recipe, start_from=str(tmp_path / "added"))
    assert torch.equal(predicted(again), predicted(task))


def test_stored_features_hold_the_layers_of_the_recipe(target, tmp_path):
    """Catches a table whose key forgets them, and a command that stores the target's features alone."""
    task, tokens = drafter_task(target, recipe=eagle3()), MemorySplits(5)
    FeatureTable(tokens, target, str(tmp_path), budget_gib=1).split("train")
    items = FeatureTable(tokens, target, str(tmp_path), 1, low_middle_high).split("train")
    assert items[0]["features"].shape[-1] == 4 * target.embed_weight.shape[1]
    stored = torch.utils.data.default_collate([items[0], items[1]])
    fresh = {"tokens": stored["tokens"], "caption": stored["caption"]}
    torch.testing.assert_close(task._pairs(stored).previous, task._pairs(fresh).previous, rtol=0, atol=1e-5)
    assert composed("train", "recipe=eagle3").feature_table.layers.path.endswith("low_middle_high")
    assert composed("train", "recipe=lk").feature_table.layers is None
