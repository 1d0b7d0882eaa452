"""Recipes: those that ship train and log the same columns; one of a user's own is a Python file and a yaml."""

import pytest
from hydra.utils import instantiate
from support.paths import ROOT
from support.recipes import NAMES, shipped
from support.tiny_tasks import MemorySplits, drafter_task, fit

from lantern.cli.composing import composed
from lantern.training.data_module import TrainingData
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.recipe import Recipe

COLUMNS = {f"val/{name}_{d}" for name in ("alpha", "agreement") for d in (1, 2, 3)}
COLUMNS |= {"val/sim_accept_len", "val/sim_agree_len", "val/target_top1"}
LOSS = '''
class Quadratic:
    """A loss of a user's own: the squared distance of the laws."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, sites):
        return self.scale * (sites.p - sites.q).square().sum(-1)
'''
YAML = """
_target_: lantern.training.drafter.recipe.Recipe
loss: { _target_: my_loss.Quadratic, scale: 3.0 }
objective: { _target_: lantern.training.drafter.losses.Mean }
depth: 2
feature_weight: 0.5
feature_noise: 0.0
"""


def validated(task: DrafterTask, folder, max_steps: int) -> dict[str, float]:
    return fit(task, folder, max_steps).validate(task, TrainingData(MemorySplits(), 4, 3), verbose=False)[0]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_trains_and_logs_what_all_log(name, target, tmp_path):
    """Catches a loss of the wrong sign, and columns that a table of recipes would lack."""
    task = drafter_task(target, recipe=shipped(name))
    before, after = validated(task, tmp_path, 1), validated(task, tmp_path, 30)
    assert set(after) == COLUMNS
    assert after["val/alpha_1"] > before["val/alpha_1"] + 0.01
    assert after["val/sim_agree_len"] > before["val/sim_agree_len"]


@pytest.mark.parametrize("option", sorted(path.stem for path in (ROOT / "conf" / "select_by").glob("*.yaml")))
def test_the_checkpoint_is_chosen_by_a_figure_that_is_logged(option):
    cfg = composed(ROOT / "conf", "train", [f"select_by={option}"])
    assert cfg.callbacks.best.monitor in COLUMNS
    assert cfg.callbacks.best.mode == "max"


def test_a_recipe_of_ones_own_is_one_file_and_one_yaml(target, tmp_path, monkeypatch):
    """As python train.py --config-dir conf recipe=quadratic. Catches recipes that are known by a list."""
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "conf" / "recipe" / "quadratic.yaml").write_text(YAML)
    (tmp_path / "my_loss.py").write_text(LOSS)
    monkeypatch.syspath_prepend(tmp_path)
    given = [f"hydra.searchpath=[file://{tmp_path}/conf]", "recipe=quadratic", "recipe.loss.scale=2.0"]
    recipe = instantiate(composed(ROOT / "conf", "train", given).recipe)
    assert isinstance(recipe, Recipe)
    assert recipe.loss.scale == 2.0
    task = drafter_task(target, recipe=recipe)
    assert validated(task, tmp_path, 1)["val/alpha_1"] < validated(task, tmp_path, 25)["val/alpha_1"]


def test_a_training_that_unrolls_late_ends_with_chains(target, tmp_path, monkeypatch):
    """Catches a step that takes its passes from elsewhere."""
    seen, depth = [], DrafterTask._depth
    monkeypatch.setattr(DrafterTask, "_depth", lambda self: seen.append(depth(self)) or seen[-1])
    fit(drafter_task(target, recipe=shipped("feature_lk", "+recipe.unroll_from=0.5")), tmp_path, 6)
    assert seen == [1, 1, 1, 2, 2, 2]
