"""The train.py command: every task composes, and bad input is one sentence."""

import pytest
import torch
from hydra.utils import instantiate
from support.commands import printed
from support.configs import composed
from support.paths import ROOT

from lantern.errors import LanternError
from lantern.runtime.files import alone_in
from lantern.training.run.budget import WholeBudget
from lantern.training.run.entry import _place
from lantern.training.run.fit import next_command

TASKS = {path.stem: path.stem for path in (ROOT / "conf" / "task").glob("*.yaml")}  # what each exports
TASKS |= {"drafter_self": "drafter", "window": "drafter", "decoder": "tokenizer"}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_names_what_it_needs(task):
    cfg = composed("train", f"task={task}")
    assert cfg.task_name == TASKS[task]
    assert cfg.callbacks.best is None or cfg.callbacks.best.monitor.startswith("val/")


@pytest.mark.parametrize("features", ["disk", "on_the_fly"])
def test_the_time_of_the_whole_command_reaches_the_tables_and_the_timer(features):
    """Catches a setting that one of the two does not read, and a half-made table where features are not stored."""
    cfg = composed("train", "+time=all", f"features={features}", "trainer.max_time=00:00:08:00")
    timer = instantiate(cfg.callbacks.budget)
    assert (type(timer), timer.time_remaining()) == (WholeBudget, 480)
    assert cfg.trainer.num_sanity_val_steps == 2
    table = cfg.get("feature_table")
    assert (table and (table.max_time, table.share)) == (("00:00:08:00", 0.3) if features == "disk" else None)
    assert composed("train").feature_table.share is None


def test_trainings_of_all_seeds_share_one_validation_set():
    """Catches samples that are drawn anew for each seed of -m seed=0,1, on which the trainings cannot be compared."""
    for task in ("drafter", "drafter_self"):
        assert composed("train", f"task={task}", "seed=1").batches.splits.validation.seed == 0


def test_the_printed_command_evaluates_on_the_target_that_was_trained_on(tmp_path):
    """Catches a command that evaluates on the embedded target, or repeats what is of the training alone."""
    place = tmp_path / "a folder"
    given = ["model=anole", f"model.checkpoint={place}", "+model.tokenizer.channels=5", "drafter=eagle"]
    given += ["sampling.top_k=[1]", "task.lr=0.1", "drafter/training@distil=eagle", "trainer.max_steps=1"]
    overrides = printed(next_command(tmp_path / "drafter", given, ["--config-dir", "my_conf"]))
    assert overrides[:2] == ["--config-dir", "my_conf"]
    overrides = overrides[2:]
    assert len(overrides) == 6
    cfg = composed("evaluate", *overrides)
    assert cfg.model._target_.endswith("load_anole")
    assert (cfg.model.checkpoint, cfg.model.tokenizer.channels, cfg.sampling.top_k) == (str(place), 5, [1])
    assert cfg.drafter.checkpoint == str(tmp_path / "drafter")


def test_an_eagle_drafter_is_measured_losslessly(tmp_path):
    """Catches the default rule and tree, LANTERN++ on a static one, as the first figure of a drafter."""
    cfg = composed("evaluate", *printed(next_command(tmp_path / "drafter", ["drafter=eagle"])))
    assert cfg.drafter._target_.endswith("load_refined_jacobi")
    assert cfg.acceptance._target_.endswith("Exact")
    assert cfg.drafter.checkpoint == str(tmp_path / "drafter")


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["task=target", "paths.weights=nowhere"], "config.json is no readable config"),
    (["task=critic", "ckpt_path=nowhere.ckpt"], "ckpt_path=nowhere.ckpt is no file"),
    (["task=critic", f"ckpt_path={ROOT}/README.md"], "README.md is of another task"),
])  # fmt: skip
def test_bad_input_is_one_sentence_and_a_failure(refused, arguments, sentence):
    assert sentence in refused("train.py", *arguments)


def test_two_trainings_in_one_folder_are_one_too_many(refused, tmp_path):
    """Catches checkpoints of two runs that overwrite each other, and metrics moved away from a run that writes them."""
    (tmp_path / "run").mkdir()
    (metrics := tmp_path / "run" / "metrics.csv").write_text("of the first")
    with alone_in(tmp_path / "run"):
        said = refused("train.py", "task=critic", f"hydra.run.dir={tmp_path}/run")
    assert f"{tmp_path}/run is in use by another run" in said
    assert metrics.read_text() == "of the first"


@pytest.mark.parametrize("given", ["cpu", "cuda:0"])
def test_a_target_apart_from_what_is_trained_is_refused(given):
    """Catches tensors of two devices that meet in the first step."""
    with pytest.raises(LanternError, match=rf"device={given} is not cuda:1, which trains"):
        _place(composed("train", f"device={given}"), torch.device("cuda", 1))


def test_the_precision_is_of_the_device_that_trains(monkeypatch):
    """Catches bf16 on a processor without its instructions, because the host has a GPU."""
    fast = {"cpu": False, "cuda": True}
    monkeypatch.setattr("lantern.training.run.processes.is_bf16_fast", lambda device: fast[device])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    asked = ([], ["trainer.accelerator=cpu"], ["device=cpu"])
    chosen = [instantiate(composed("train", *given).trainer.precision) for given in asked]
    assert chosen == ["bf16-mixed", "32-true", "32-true"]


@pytest.mark.parametrize(("has_gpu", "expected"), [(False, "cpu"), (True, "cuda")])
def test_a_training_runs_on_a_gpu_or_else_on_the_processor(has_gpu, expected, monkeypatch):
    """On a Mac as well. Catches Lightning's own choice there, mps, which has no float64."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert instantiate(composed("train").trainer.accelerator) == expected
    assert composed("train", "trainer.accelerator=cpu").trainer.accelerator == "cpu"
