"""Trainings that are debugged, +debug=…, and where their figures go, logger=…: on a miniature."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lightning_utilities.core.imports import RequirementCache
from omegaconf import OmegaConf
from support.commands import run_script, trainings_here
from support.configs import composed
from support.paths import CONF

from lantern.errors import LanternError
from lantern.training.run import entry
from tools.miniature import write_captioned_scenes


@pytest.fixture
def run(tmp_path, monkeypatch) -> Iterator[Callable[..., Path]]:
    """train.py in this process, to the run folder."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *settings: str) -> Path:
        run_script(monkeypatch, "train.py", "logger.wandb=null", f"hydra.run.dir={tmp_path / name}", *settings)
        return tmp_path / name

    with trainings_here(monkeypatch):
        yield run


@pytest.fixture
def train(run, weights, tmp_path) -> Callable[..., Path]:
    """A training of at most some steps."""
    write_captioned_scenes(tmp_path / "images", 16, side=8)
    settings = (
        f"paths.weights={weights}", f"paths.cache_dir={tmp_path / 'cache'}", "data=imagefolder",
        f"data.folder={tmp_path / 'images'}", "features=on_the_fly", "dtype=float32",
        "device=cpu", "data.size=64", "batches.batch_size=4", "batches.splits.validation.num_images=2",
    )  # fmt: skip
    return lambda name, *others: run(name, *settings, *others)


@pytest.mark.full
def test_a_training_can_be_tried_for_one_step_overfitted_and_profiled(train, capsys):
    """Catches a fast_dev_run that makes tables of all images or leaves checkpoints, an overfitting that ends at once,
    and an empty profile."""
    tried = train("tried", "+debug=fast_dev_run")
    assert "trained 1 step on 4 of 1" in capsys.readouterr().out
    assert not list(tried.glob("checkpoints/*"))
    assert not (tried / "metrics.csv").exists()
    few = train("few", "+debug=overfit", "trainer.max_steps=4", "trainer.val_check_interval=2")
    assert (few / "drafter" / "model.safetensors").is_file()
    profiled = train("profiled", "+debug=profiler", "trainer.max_steps=3", "trainer.val_check_interval=3")
    assert "run_training_batch" in (profiled / "fit-profile.txt").read_text()


def test_a_trial_makes_tables_of_a_batch_of_images_alone():
    """Catches minutes of encoding and drawing before the one step, and a limit that a real training has, too."""
    cfg = composed("train", "+debug=fast_dev_run", "task=drafter_self", "batches.batch_size=4")
    assert (cfg.token_table.most, cfg.samples.num_images, cfg.batches.splits.validation.num_images) == (4, 4, 4)
    assert composed("train", "task=target", "+debug=fast_dev_run").batches.splits.most == 16
    assert composed("train").token_table.most is None


@pytest.mark.full
def test_a_tokenizer_whose_codes_begin_later_can_be_tried_for_one_step(run):
    """Catches a refusal of too few steps, which no setting could help."""
    run("one", "task=tokenizer", "+debug=fast_dev_run", "rendered.num_train=64", "rendered.num_validation=8")


@pytest.mark.parametrize("logger", sorted(path.stem for path in (CONF / "logger").glob("*.yaml")))
def test_every_logger_stands_beside_metrics_csv(logger):
    """Catches a choice that loses the file which optimized_metric is read from."""
    assert set(composed("train", f"logger={logger}").logger) == {"csv", logger}


def test_settings_of_a_logger_that_is_not_chosen_make_none():
    """Catches +sweep=recipe, which names the runs of W&B, beside logger=csv."""
    assert entry._loggers(OmegaConf.create({"wandb": {"name": "lk-0"}, "csv": None})) == []


def test_a_logger_whose_package_is_missing_is_one_sentence(monkeypatch):
    monkeypatch.setattr("pytorch_lightning.loggers.mlflow._MLFLOW_AVAILABLE", RequirementCache("nowhere"))
    config = OmegaConf.create({"mlflow": {"_target_": composed("train", "logger=mlflow").logger.mlflow._target_}})
    with pytest.raises(LanternError, match="; or give logger=csv"):
        entry._loggers(config)
