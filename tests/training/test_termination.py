"""SIGTERM during a training's preparation, and both SIGTERM and Ctrl-C during its steps, against a real Trainer."""

import os
import signal
from datetime import timedelta

import pytest
import pytorch_lightning as pl
import torch
from support.tiny_tasks import MemorySplits, target_task

from lantern.training.data_module import TrainingData
from lantern.training.run.interrupts import STATUS, PromptEnd
from lantern.training.run.saved_state import LatestCheckpoint


class Module(pl.LightningModule):
    def __init__(self, at: str) -> None:
        super().__init__()
        self.layer, self.at, self.steps, self.went_on = torch.nn.Linear(1, 1), at, 0, False

    def train_dataloader(self):
        if self.at == "preparation":
            os.kill(os.getpid(), signal.SIGTERM)
            self.went_on = True
        return torch.utils.data.DataLoader(torch.ones(8, 1))

    def training_step(self, batch):
        self.steps += 1
        if self.at == "step" and self.steps == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize(("at", "steps", "said"), [
    ("preparation", 0, "error: ended by SIGTERM; started again"), ("step", 2, "error: ended by SIGTERM after step 2;"),
])  # fmt: skip
def test_the_signal_ends_a_training_promptly_with_a_status(at, steps, said, tmp_path, capsys):
    """Catches preparation that goes on for hours after the signal, and an exit status of 0."""
    before, ending, module = signal.getsignal(signal.SIGTERM), PromptEnd(), Module(at)
    try:
        ending.listen()
        trainer = pl.Trainer(
            max_steps=6, accelerator="cpu", callbacks=[ending], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            trainer.fit(module)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == STATUS == 143
    assert (module.steps, module.went_on) == (steps, False)
    assert said in capsys.readouterr().err


class SignalledAt(pl.Callback):
    """Sends this process a signal, so many times, in the middle of a step: gradients are there, weights are old."""

    def __init__(self, step: int, number: int, times: int = 1) -> None:
        self.step, self.number, self.times = step, number, times

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer) -> None:
        for _ in range(self.times if trainer.global_step == self.step else 0):
            os.kill(os.getpid(), self.number)


def train(task, folder, *callbacks: pl.Callback, ckpt_path=None) -> None:
    """Eight steps, the fourth of which is validated; no checkpoint is due."""
    latest = LatestCheckpoint(folder, "latest", train_time_interval=timedelta(minutes=3), enable_version_counter=False)
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=8, max_epochs=-1, callbacks=[*callbacks, latest], logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, check_val_every_n_epoch=None,
        val_check_interval=4, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(task, TrainingData(MemorySplits(), batch_size=4, seed=3), ckpt_path=ckpt_path, weights_only=True)


@pytest.fixture
def ending():
    """A PromptEnd that listens, in a process that Ctrl-C interrupts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (listening := PromptEnd()).listen()
    yield listening
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "status", "name"), [
    (signal.SIGTERM, STATUS, "SIGTERM"), (signal.SIGINT, 1, "Ctrl-C"),
])  # fmt: skip
def test_the_step_of_the_signal_is_saved_and_a_continued_run_ends_in_the_same_weights(
    number, status, name, ending, weights, tmp_path, capsys
):
    """Catches minutes of steps that are lost behind a sentence which says that the run goes on, and silence."""
    whole, continued = target_task(weights), target_task(weights)
    train(whole, tmp_path / "whole")
    with pytest.raises(SystemExit) as ended:
        train(target_task(weights), tmp_path, SignalledAt(5, number), ending)
    said = capsys.readouterr().err
    assert ended.value.code == status
    assert f"error: ended by {name} after step 6; started again with the same hydra.run.dir=… it goes on" in said
    assert f"with ckpt_path=last hydra.run.dir={tmp_path} trainer.max_time=" in said
    assert torch.load(tmp_path / "latest.ckpt", weights_only=True)["global_step"] == 6
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning has it ignored
    train(continued, tmp_path, ckpt_path=str(tmp_path / "latest.ckpt"))
    for (key, a), b in zip(whole.state_dict().items(), continued.state_dict().values(), strict=True):
        assert torch.equal(a, b), key


def test_a_second_interrupt_ends_at_once_and_says_what_is_lost(ending, weights, tmp_path, capsys):
    """Catches a checkpoint of half a step, and a sentence that promises one."""
    with pytest.raises(SystemExit):
        train(target_task(weights), tmp_path, SignalledAt(2, signal.SIGINT, times=2), ending)
    said = capsys.readouterr().err
    assert "ended by Ctrl-C after step 2; no checkpoint is saved yet: started again it begins anew" in said
    assert not list(tmp_path.glob("*.ckpt"))


def test_no_step_before_a_validation_is_saved(ending, weights, tmp_path, capsys):
    """Catches a validation that the continued run leaves out, because it counts as done."""
    with pytest.raises(SystemExit):
        train(target_task(weights), tmp_path, SignalledAt(3, signal.SIGINT), ending)
    assert "after step 4; no checkpoint is saved yet" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.ckpt"))


def test_a_training_leaves_the_interrupt_as_it_was(ending, weights, tmp_path):
    train(target_task(weights), tmp_path, ending)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
