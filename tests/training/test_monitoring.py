"""What a training shows and logs: the bar on a fake terminal and in a fake log, the clock of its steps, a loss that is
not finite, and its W&B record, read back from the offline file."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
import wandb
from support.offline_runs import OfflineRun, read_runs
from support.terminal import Terminal
from support.tiny_tasks import target_task
from torch import nn

from lantern.errors import LanternError
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.training.run.monitoring import FiniteLoss, TolerantWandbLogger, TrainingBar, wandb_logger
from lantern.training.run.schedule import WarmupCosine

SECONDS = 20  # of a step


class Slow(pl.LightningModule):
    """A step takes SECONDS of the fake clock."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.now = nn.Linear(1, 1), 0.0

    def training_step(self, batch, batch_idx: int):
        self.now += SECONDS
        self.trainer.should_stop = self.global_step >= 39  # where a test sets no limit
        return self.layer(batch[0]).sum() * 0 + 2.5

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def trained(folder, stream: io.StringIO, steps: int = 10, resumed: str | None = None) -> str:
    task = Slow()
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 1)))
    trainer = pl.Trainer(
        max_steps=steps, max_epochs=-1, callbacks=[WarmupCosine(1), TrainingBar(stream, lambda: task.now)],
        logger=False, enable_checkpointing=False, accelerator="cpu", default_root_dir=folder,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, batches, ckpt_path=resumed, weights_only=True)
    trainer.save_checkpoint(folder / "last.ckpt")
    return stream.getvalue()


def test_a_terminal_shows_step_loss_share_and_time_left(tmp_path):
    """Catches a bar without the time left, or one that counts epochs; and a bar that stays behind the training."""
    shown = trained(tmp_path, Terminal())
    assert " 30 % |######              | training: step 3, loss 2.5, 2:20 left" in shown
    assert shown.rstrip(" ").endswith("\r")


def test_a_log_has_one_line_a_minute_and_nothing_else(tmp_path, capsys):
    """Catches a log of redrawn bars, Lightning's own bar, and a first line before there is anything to say."""
    lines = trained(tmp_path, io.StringIO()).splitlines()
    assert lines == [
        "training: 30%, step 3, loss 2.5, 2:20 left",
        "training: 60%, step 6, loss 2.5, 1:20 left",
        "training: 90%, step 9, loss 2.5, 0:20 left",
    ]
    assert "it/s" not in capsys.readouterr().err


def test_a_resumed_run_counts_the_time_left_from_its_own_steps(tmp_path):
    """Catches a rate that takes the former run's steps for this one's."""
    trained(tmp_path, io.StringIO(), steps=4)
    lines = trained(tmp_path, io.StringIO(), steps=8, resumed=str(tmp_path / "last.ckpt")).splitlines()
    assert lines == ["training: 88%, step 7, loss 2.5, 0:20 left"]


class Diverging(pl.LightningModule):
    """A loss that is not finite from a step on."""

    def __init__(self, from_step: int, value: float) -> None:
        super().__init__()
        self.layer, self.from_step, self.value = nn.Linear(1, 1), from_step, value

    def training_step(self, batch, batch_idx: int):
        return self.layer(batch[0]).sum() * (self.value if self.global_step >= self.from_step else 1.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.mark.parametrize(("from_step", "steps", "stops"), [(0, 30, 1), (4, 30, 11), (14, 15, 15)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(value, from_step, steps, stops, tmp_path):
    """Catches weights of NaN that are exported after hours, also where the last step is the first bad one."""
    task = Diverging(from_step, value)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 1)))
    trainer = pl.Trainer(
        max_steps=steps, callbacks=[FiniteLoss()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accelerator="cpu", default_root_dir=tmp_path, enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(LanternError, match=rf"the training loss is \S+ at step {stops};"):
        trainer.fit(task, batches)


def test_weights_that_are_not_finite_are_not_exported_where_nothing_is_trained(weights):
    task = target_task(weights)
    end = FiniteLoss()
    end.on_fit_end(SimpleNamespace(global_step=9), task)
    task.transformer.norm.weight.data[0] = float("nan")
    with pytest.raises(LanternError, match="the weights are not finite at step 9; nothing is exported"):
        end.on_fit_end(SimpleNamespace(global_step=9), task)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staged"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    yield
    wandb.finish()


def logger(folder: Path, checkpoint: str | None = None) -> TolerantWandbLogger:
    return wandb_logger("lantern", str(folder), "drafter", ["drafter"], checkpoint=checkpoint)


@pytest.mark.full
def test_a_drafter_is_an_artifact_of_the_run_that_trained_it(offline, tmp_path):
    weights = tmp_path / "drafter"
    save_weights(weights, {}, {"dim": 8})
    own = logger(tmp_path)
    own.log_metrics({"val/loss": 1.0}, 3)
    own.log_weights(weights, "drafter")
    wandb.finish()
    (run,) = read_runs(tmp_path)
    assert isinstance(run, OfflineRun)
    assert (run.run.job_type, list(run.run.tags), run.exit_code) == ("train", ["drafter"], 0)
    assert [(a.type, a.name) for a in run.artifacts] == [("drafter", f"drafter-{weights_hash(weights)}")]
    assert {entry.path for entry in run.artifacts[0].manifest.contents} == {"model.safetensors", "config.json"}
    assert run.summary["val/loss"] == 1.0


@pytest.mark.full
def test_each_point_of_a_sweep_is_a_run_of_its_own(offline, tmp_path):
    """Catches Lightning's logger, which logs to the run that an earlier point of the process left open."""
    for name in ("first", "second"):
        logger(tmp_path / name).log_metrics({"val/loss": 1.0}, 3)
    wandb.finish()
    assert [len(read_runs(tmp_path / name)) for name in ("first", "second")] == [1, 1]


def test_training_that_is_resumed_goes_on_in_its_own_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    first = logger(tmp_path / "first")._wandb_init
    checkpoint = str(tmp_path / "first" / "checkpoints" / "last.ckpt")
    assert logger(tmp_path / "second", checkpoint)._wandb_init["id"] == first["id"]
    assert first["resume"] == "allow"
    assert logger(tmp_path / "third")._wandb_init["id"] != first["id"]
