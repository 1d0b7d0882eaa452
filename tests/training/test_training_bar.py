"""The bar of train.py, on a fake terminal and in a fake log, by a clock that the model advances."""

import io

import pytest
import pytorch_lightning as pl
import torch
from support.terminal import Terminal
from torch import nn

from lantern.training.run.monitoring import TrainingBar
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


@pytest.mark.parametrize(
    ("stream", "last"), [(io.StringIO, "training: 0%, step 39,"), (Terminal, "training: step 40,")]
)
def test_training_without_a_limit_has_no_time_left(tmp_path, stream, last):
    """Catches a division by a share of 0."""
    shown = trained(tmp_path, stream(), steps=-1)
    assert f"{last} loss 2.5" in shown
    assert "left" not in shown
