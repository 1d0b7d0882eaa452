"""What a training shows and logs: the bar on a fake terminal and in a fake log, the clock of its steps, a loss that is
not finite, and its W&B record, read back from the offline file."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import closing
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import wandb
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from pytorch_lightning.demos.boring_classes import BoringModel
from support.configs import composed_with_hydra
from support.offline_runs import read_runs
from support.terminal import Terminal

from lantern.cli.sweep_callback import Points
from lantern.errors import LanternError
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.runtime.progress_line import ProgressLine
from lantern.training.run import monitoring
from lantern.training.run.budget import Budget, WarmupCosine, WholeBudget
from lantern.training.run.monitoring import FiniteLoss, TrainingBar, wandb_logger


class Small(BoringModel):
    """Its loss is this function of the step. A step takes 20 seconds of the fake clock."""

    def __init__(self, loss_at: Callable[[int], float]) -> None:
        super().__init__()
        self.loss_at, self.now = loss_at, 0.0

    def training_step(self, batch, batch_idx: int):
        self.now += 20
        return self.layer(batch).sum() * 0 + self.loss_at(self.global_step)


def train(task: Small, folder: Path, steps: int, *callbacks: pl.Callback) -> None:
    trainer = pl.Trainer(
        max_steps=steps, callbacks=[WarmupCosine(1), *callbacks], logger=False, enable_checkpointing=False,
        accelerator="cpu", default_root_dir=folder, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task)


@pytest.mark.parametrize(("from_step", "steps", "stops"), [(0, 30, 1), (4, 30, 11), (14, 15, 15)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(value, from_step, steps, stops, tmp_path):
    """Catches weights of NaN that are exported after hours, also where the last step is the first bad one."""
    task = Small(lambda step: value if step >= from_step else 1.0)
    with pytest.raises(LanternError, match=rf"the training loss is \S+ at step {stops};"):
        train(task, tmp_path, steps, FiniteLoss())


def test_a_terminal_shows_step_loss_and_time_left(tmp_path, capsys):
    """Catches a bar without the time left, one that stays behind the training, and Lightning's own."""
    task, stream = Small(lambda step: 2.5), Terminal()
    train(task, tmp_path, 10, TrainingBar(stream, lambda: task.now))
    said = stream.getvalue()
    assert " 30 % |######              | training: step 3, loss 2.5, 2:20 left" in said
    assert said.rstrip(" ").endswith("\r")
    assert "it/s" not in capsys.readouterr().err


def test_a_validation_shows_itself_and_those_to_come_and_the_comparison_are_part_of_the_time_left():
    """Catches silence in a validation, also in the batch of it before the first step, which tells how long they take,
    "0:00 left" before one or in it, and a full bar while training and held-out images are compared at the end."""
    now, stream = [0.0], Terminal()
    trainer = SimpleNamespace(
        is_global_zero=True, global_step=0, max_steps=10, max_epochs=-1, callbacks=[], sanity_checking=True,
        num_val_batches=[4], num_sanity_val_batches=[1], val_check_batch=5, world_size=1,
        lightning_module=SimpleNamespace(compare_origins=None, compared=16),
        val_dataloaders=SimpleNamespace(dataset=range(16)),
    )  # fmt: skip
    bar = TrainingBar(stream, lambda: now[0])
    bar.on_sanity_check_start(trainer, None)
    bar.on_validation_start(trainer, None)
    now[0] += 1
    bar.on_validation_batch_start(trainer, None, None, 0)
    now[0] += 9
    bar.on_validation_end(trainer, None)
    assert "training: validation after step 0, batch 1 of 1" in stream.getvalue()
    bar.on_sanity_check_end(trainer, None)
    trainer.sanity_checking = False
    bar.on_train_start(trainer, None)
    for _ in range(5):
        now[0], trainer.global_step = now[0] + 2, trainer.global_step + 1
        bar.on_train_batch_end(trainer, None, {"loss": 1.0}, None, 0)
    assert "step 3, loss 1, 2:14 left" in stream.getvalue()  # seven steps of two seconds, three times forty
    bar.on_validation_start(trainer, None)
    for index in range(4):
        bar.on_validation_batch_start(trainer, None, None, index)
        now[0] += 10
    bar.on_validation_end(trainer, None)
    # of this validation, five steps, another validation, and the comparison
    assert " 50 % |##########          | training: validation after step 5, batch 3 of 4, 1:50" in stream.getvalue()
    now[0], trainer.global_step = now[0] + 2, 6
    bar.on_train_batch_end(trainer, None, {"loss": 1.0}, None, 0)
    assert "step 6, loss 1, 1:28 left" in stream.getvalue()
    now[0], trainer.global_step = now[0] + 1, 10
    bar.on_validation_start(trainer, None)
    bar.on_validation_batch_start(trainer, None, None, 0)
    assert " 99 % |###################8| training: validation after step 10, batch 1 of 4, 1:20" in stream.getvalue()
    bar.on_train_end(trainer, None)


@pytest.fixture
def points(monkeypatch) -> Points:
    """By a clock that stands, in the place of a command's own."""
    monkeypatch.setattr(Points, "here", None)
    monkeypatch.setattr(ProgressLine, "whole", None)
    monkeypatch.setattr("time.monotonic", lambda: points.now)
    points = Points(lambda: points.now)
    points.now = 0.0
    return points


def test_a_sweep_of_trainings_counts_its_points(points):
    """Catches a bar that falls to 0 % between points, a time left of one point alone, and points not begun that take no
    time, or that of a finished one."""
    stream, cfg = Terminal(), composed_with_hydra("train")
    cfg.hydra.overrides.task = ["seed=0,1,2,3"]
    points.on_multirun_start(cfg)
    trainer = SimpleNamespace(
        is_global_zero=True, global_step=0, max_steps=10, max_epochs=-1, callbacks=[], sanity_checking=False,
        num_val_batches=[], val_check_batch=inf,
    )  # fmt: skip
    for number in range(3):
        points.on_job_start()
        with closing(ProgressLine("starting", stream, lambda: points.now)) as line:
            line.show(0.0, "loading weights", None)
        points.now, trainer.global_step = points.now + 30, 0  # tables
        bar = TrainingBar(stream, lambda: points.now)
        for _ in range(10 * (number != 1)):  # the second one is finished
            if not trainer.global_step:
                bar.setup(trainer, None, "fit")
                bar.on_train_start(trainer, None)
            points.now, trainer.global_step = points.now + 2, trainer.global_step + 1
            bar.on_train_batch_end(trainer, None, {"loss": 1.0}, None, 0)
        bar.on_train_end(trainer, None)
        points.on_job_end()
    said = stream.getvalue()
    assert " 20 % |####                | point 1 of 4: step 5, loss 1, 2:40 left" in said  # ten seconds, three of fifty
    assert " 25 % |#####               | point 2 of 4: starting, loading weights" in said
    assert "point 3 of 4: step 5, loss 1, 1:00 left" in said
    assert (shares := [*map(int, re.findall(r"(\d+) % \|", said))]) == sorted(shares)


@pytest.mark.parametrize("budget", [Budget, WholeBudget])
def test_the_bar_of_a_training_counts_to_its_end_from_its_tables_on(points, budget):
    """Catches a bar for each stage, which runs backwards and says what is left of features alone."""

    def table(title: str, seconds: float) -> None:
        with closing(ProgressLine(f"making {title}", stream, lambda: points.now)) as line:
            for half in (1, 2):
                points.now += seconds / 2
                line.show(half / 2, f"{half} of 2", seconds * (2 - half) / 2)

    points.on_job_start()
    bar = TrainingBar(stream := Terminal(), lambda: points.now, "features-train")
    trainer = SimpleNamespace(
        is_global_zero=True, global_step=0, max_steps=-1, max_epochs=-1, callbacks=[budget("00:00:02:00")],
        sanity_checking=True, num_val_batches=[4], num_sanity_val_batches=[1], val_check_batch=400,
    )  # fmt: skip
    bar.setup(trainer, None, "fit")
    table("samples-validation", 10)
    bar.on_validation_start(trainer, None)
    points.now += 3
    bar.on_validation_end(trainer, None)
    table("tokens-train", 20)
    table("features-train", 100)
    trainer.sanity_checking = False
    bar.on_train_start(trainer, None)
    for _ in range(3):
        points.now, trainer.global_step = points.now + 2, trainer.global_step + 1
        bar.on_train_batch_end(trainer, None, {"loss": 1.0}, None, 0)
    bar.on_train_end(trainer, None)
    said = stream.getvalue()
    assert "training: step 3, loss 1, 2:10 left" in said
    if budget is WholeBudget:
        assert "training: making samples-validation, 1 of 2, 1:55 left" in said
    else:  # 83 seconds have passed; half the features, the time, a validation
        assert re.search(r" 0 % \| *\| training: making tokens-train, 1 of 2, 0:10 left of it", said)
        assert re.search(r" 31 % \|######\S? *\| training: making features-train, 1 of 2, 3:02 left", said)
    assert (shares := [*map(int, re.findall(r"(\d+) % \|", said))]) == sorted(shares)


def test_a_multirun_ends_with_its_points_best_first(points, tmp_path, capsys):
    """Catches a higher loss in front, and settings that all have in each line."""
    for number, figures in enumerate(({"val/loss": 2.0}, {"val/loss": 1.5}, {})):
        (hydra := tmp_path / str(number) / ".hydra").mkdir(parents=True)
        (hydra / "overrides.yaml").write_text(f"[task=target, task.lr={number}, seed={number}]")
        (hydra.parent / "config.yaml").write_text("callbacks: {best: {monitor: val/loss, mode: min}}")
        (hydra.parent / "exported.json").write_text(json.dumps({"figures": figures}))
    points.on_multirun_start(composed_with_hydra("train", f"hydra.sweep.dir={tmp_path}"))
    points.on_multirun_end()
    places = ((1.5, 1), (2, 0), ("", 2))
    lines = [f"{figure:>8}  task.lr={n}  seed={n}  {tmp_path / str(n)}" for figure, n in places]
    assert capsys.readouterr().out.splitlines() == ["3 points, best val/loss first:", *lines]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staged"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    yield
    wandb.finish()


def logger(folder: Path, checkpoint: str | None = None, name: str = "drafter", tag: str = "drafter"):
    return wandb_logger("lantern", str(folder), name, [tag], checkpoint=checkpoint)


def test_a_name_and_a_tag_that_wandb_does_not_take_are_made_to_fit(offline, tmp_path, monkeypatch):
    """Catches a training that ends for a name with a slash, or for a tag of 65 letters."""
    own = logger(tmp_path, name="lr 1e-3/try 2", tag=65 * "x")
    trainer = pl.Trainer(
        logger=own, max_steps=1, enable_checkpointing=False, accelerator="cpu", default_root_dir=tmp_path
    )
    trainer.fit(BoringModel())
    exported = {"step": 400, "figures": {"val/alpha_1": 0.5}}
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(sys, "stdout", terminal)
    own.log_weights(save_weights(tmp_path / "drafter", {}, {"dim": 8}).parent, "drafter", exported)
    wandb.finish()
    (run,) = read_runs(tmp_path)
    assert (run.summary["exported_step"], run.summary["val/alpha_1"]) == (400, 0.5)
    assert (run.run.display_name, list(run.run.tags)) == (f"lr 1e-3/try 2 {tmp_path.name}", [64 * "x"])
    sending, kept = terminal.getvalue().split("\rkept offline for Weights & Biases; send it by: ")  # no glued line
    assert "sending it to Weights & Biases" in sending
    assert kept == f"wandb sync {tmp_path}/wandb\n"


def test_a_run_is_named_by_what_is_compared(offline, tmp_path, monkeypatch):
    """Catches runs of two recipes, data or folders that bear one name, and seeds that share no group."""
    cfg = composed_with_hydra("train", "recipe=hass", "data=imagefolder", "data.folder=x", "seed=3")
    monkeypatch.setattr(HydraConfig.instance(), "cfg", cfg)
    own = wandb_logger("lantern", str(tmp_path), cfg.logger.wandb.name, [], cfg.logger.wandb.group)
    own.log_metrics({"val/loss": 1.0}, 3)
    wandb.finish()
    (run,) = read_runs(tmp_path)
    name = "drafter-llamagen-hass-imagefolder"
    assert (run.run.display_name, run.run.run_group) == (f"{name}-seed3 {tmp_path.name}", name)


def test_a_tracker_that_fails_at_its_start_ends_no_training(offline, tmp_path, monkeypatch, caplog):
    """Catches Lightning, which asks for the run before the first step, outside all that is logged."""

    def broken(**_):
        raise SystemExit("no key")

    monkeypatch.setattr(wandb, "init", broken)
    trainer = pl.Trainer(
        logger=logger(tmp_path), max_steps=1, enable_checkpointing=False, accelerator="cpu", default_root_dir=tmp_path
    )
    trainer.fit(BoringModel())
    assert trainer.global_step == 1
    assert caplog.text.count("Weights & Biases gets nothing more of this run (no key)") == 1


@pytest.mark.full
def test_a_drafter_is_an_artifact_of_the_run_that_trained_it(offline, tmp_path):
    """Beside a run that an earlier point of a sweep left open. Catches Lightning's logger, which logs to that one."""
    weights = tmp_path / "drafter"
    save_weights(weights, {}, {"dim": 8})
    logger(tmp_path / "earlier").log_metrics({"val/loss": 2.0}, 3)
    own = logger(tmp_path / "own")
    own.log_metrics({"val/loss": 1.0}, 3)
    own.log_weights(weights, "drafter", {"step": 2, "figures": {"val/loss": 0.5}})
    wandb.finish()
    (run,) = read_runs(tmp_path / "own")
    assert (run.run.job_type, list(run.run.tags), run.exit_code) == ("train", ["drafter"], 0)
    assert [(a.type, a.name) for a in run.artifacts] == [("drafter", "drafter-llamagen")]
    assert {*run.artifacts[0].aliases} == {"latest", weights_hash(weights)}
    assert {entry.path for entry in run.artifacts[0].manifest.contents} == {"model.safetensors", "config.json"}
    assert run.summary["val/loss"] == 0.5  # of the exported step, not of the last one


def test_points_of_a_sweep_under_an_agent_are_refused(offline, tmp_path, monkeypatch):
    """Catches `wandb agent` with train.py -m, whose points W&B logs as the agent's one run."""
    monkeypatch.setattr(monitoring.HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(monitoring.HydraConfig, "get", lambda: SimpleNamespace(mode=RunMode.MULTIRUN))
    logger(tmp_path)
    monkeypatch.setenv("WANDB_SWEEP_ID", "abcd1234")
    with pytest.raises(LanternError, match="leave -m out"):
        logger(tmp_path)


def test_training_that_is_resumed_goes_on_in_its_own_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    first = logger(tmp_path / "first")._wandb_init
    checkpoint = str(tmp_path / "first" / "checkpoints" / "last.ckpt")
    assert logger(tmp_path / "second", checkpoint)._wandb_init["id"] == first["id"]
    assert first["resume"] == "allow"
    assert logger(tmp_path / "third")._wandb_init["id"] != first["id"]
