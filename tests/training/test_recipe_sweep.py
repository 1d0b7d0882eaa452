"""python train.py +sweep=recipe: its points compose, and a killed sweep continues."""

import re

import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from support.configs import composed_with_hydra
from support.made_recipes import made_run
from support.paths import CONF
from support.recipes import NAMES

from lantern.errors import LanternError
from lantern.identity import write_provenance
from lantern.models.checkpoints import save_weights
from lantern.training.run.training_folder import is_finished, named_weights


def test_the_sweep_takes_every_recipe_of_eagle_and_two_seeds():
    """All but the one for drafter=parallel. Catches a list of recipes that a new one is not in."""
    names = [name for name in NAMES if name != "p_eagle"]
    axes = composed_with_hydra("train", "+sweep=recipe").hydra.sweeper.params
    loader = ConfigLoaderImpl(create_config_search_path(str(CONF)))
    overrides = OverridesParser.create(loader).parse_overrides([f"{key}={value}" for key, value in axes.items()])
    (points,) = BasicSweeper.split_arguments(overrides, None)
    assert sorted(points) == sorted([f"recipe={name}", f"seed={seed}"] for name in names for seed in (0, 1))


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_a_point_with_a_folder_of_its_own_and_equal_data(name, monkeypatch):
    """Catches W&B runs of one name, which cannot be told apart."""
    cfg = composed_with_hydra("train", "+sweep=recipe", f"recipe={name}", "seed=1")
    monkeypatch.setattr(HydraConfig.instance(), "cfg", cfg)
    assert (cfg.hydra.sweep.subdir, cfg.logger.wandb.name) == (f"{name}-1", f"{name}-1")
    assert (cfg.batches.seed, cfg.batches.splits.validation.seed, cfg.images.config.seed) == (1, 0, 0)


def test_a_finished_point_is_not_trained_again(tmp_path):
    """Catches a sweep that trains all over, and one that takes a run of other settings for its own."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    assert is_finished(folder, config)
    with pytest.raises(LanternError, match=r"lk-0 holds a run of other settings.*hydra\.sweep\.dir"):
        is_finished(folder, config | {"seed": 5})
    assert not is_finished(tmp_path / "lk-1", config)
    (folder / "drafter" / "model.safetensors").unlink()  # killed while it was exported
    assert not is_finished(folder, config)


def test_the_settings_of_another_run_are_named(tmp_path):
    """Catches a search through two configurations, and a cache that was moved, which changes no weight."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    config |= {"seed": 0, "task": {"lr": 1, "depth": 2}, "paths": {"root": "r", "cache_dir": "a"}}
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    assert is_finished(folder, config | {"paths": {"root": "r", "cache_dir": "b"}})
    now = config | {"seed": 5, "task": {"lr": 3}, "paths": {"root": "s", "cache_dir": "b"}}
    told = "other settings (seed was 0, is 5; task.lr was 1, is 3; task.depth was 2, is not given; 1 more in its config"
    with pytest.raises(LanternError, match=re.escape(told)):
        is_finished(folder, now)


def test_a_finished_point_of_other_weights_is_not_taken_for_its_own(tmp_path):
    """Catches a sweep of a target that was trained anew, half of whose drafters are of the old one."""
    folder, target = made_run(tmp_path / "lk-0"), tmp_path / "target"
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml")) | {"model": {"folder": str(target)}}
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    save_weights(target, {"weight": torch.zeros(2)}, {})
    before = named_weights(config)
    write_provenance(folder, config, before | {"target": "also recorded"})
    assert is_finished(folder, config)
    save_weights(target, {"weight": torch.ones(2)}, {})
    said = f"lk-0 holds a run on other weights: model.folder was {before['model.folder']}, is .*; put them back"
    with pytest.raises(LanternError, match=said):
        is_finished(folder, config)


def test_settings_that_change_no_weight_may_differ(tmp_path):
    """Catches a disk budget or a device that counts as a setting of the training."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))

    def under(budget_gib: int, accelerator: object) -> dict:
        table, trainer = {"budget_gib": budget_gib, "layers": None}, {"max_steps": 3, "accelerator": accelerator}
        return config | {"feature_table": table, "trainer": trainer}

    (folder / "config.yaml").write_text(OmegaConf.to_yaml(under(4, "auto")))
    now = under(20, {"_target_": "lantern.training.run.processes.default_accelerator"})
    assert is_finished(folder, now)
    with pytest.raises(LanternError, match="holds a run of other settings"):
        is_finished(folder, now | {"trainer": {"max_steps": 4}})
