"""A signal that puts a training's job back into the queue: it waits for the end of the step, which is saved."""

import os
import signal

import pytest
import pytorch_lightning as pl
import torch
from support.tiny_tasks import MemorySplits, target_task
from support.tiny_tasks import fit as short_fit

from lantern.training.data_module import TrainingData
from lantern.training.run.interrupts import SaveBeforeRequeue


class SignalledAt(pl.Callback):
    """Sends this process a signal in the middle of a step: gradients are there, the weights are those before it."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


class Validated(pl.Callback):
    """Notes the steps after which there was a validation."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.steps.append(trainer.global_step)


def fit(task, *callbacks: pl.Callback, ckpt_path=None, val_check_interval=1000) -> pl.Trainer:
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=8, max_epochs=-1, callbacks=list(callbacks), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        check_val_every_n_epoch=None, val_check_interval=val_check_interval,
    )  # fmt: skip
    trainer.fit(task, TrainingData(MemorySplits(), batch_size=4, seed=3), ckpt_path=ckpt_path, weights_only=True)
    return trainer


@pytest.fixture
def requeued():
    """The signals that reached a handler such as submitit's, which requeues the job and ends the process."""
    received = []

    def requeue(number, frame):
        received.append(number)
        raise SystemExit(255)

    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    signal.signal(signal.SIGUSR2, requeue)
    yield received
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_a_signal_in_a_step_saves_at_its_end_and_the_continued_run_ends_in_the_same_weights(
    number, requeued, weights, tmp_path
):
    """Catches a checkpoint of the weights before the step, or of some of them after it, with the position behind it."""
    whole, continued = target_task(weights), target_task(weights)
    fit(whole)
    path = tmp_path / "latest.ckpt"
    with pytest.raises(SystemExit):
        fit(target_task(weights), SignalledAt(5, number), SaveBeforeRequeue(str(path)))
    assert requeued == ([number] if number == signal.SIGUSR2 else [])
    assert torch.load(path, weights_only=True)["global_step"] == 6
    fit(continued, SaveBeforeRequeue(str(path)), ckpt_path=str(path))
    for (name, a), b in zip(whole.state_dict().items(), continued.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_a_signal_before_a_validation_waits_until_it_is_made(requeued, weights, tmp_path):
    """Catches a validation that the continued run leaves out, because it counts as done."""
    path, validated = tmp_path / "latest.ckpt", []
    callbacks = Validated(validated), SignalledAt(3, signal.SIGUSR2), SaveBeforeRequeue(str(path))
    with pytest.raises(SystemExit):
        fit(target_task(weights), *callbacks, val_check_interval=4)
    assert (validated, torch.load(path, weights_only=True)["global_step"]) == ([4], 5)
    fit(target_task(weights), Validated(validated), ckpt_path=str(path), val_check_interval=4)
    assert validated == [4, 8]


def test_what_lightning_saves_beside_the_checkpoint_is_removed_once_that_is_read(weights, tmp_path):
    """Catches a whole checkpoint more in the run folder for each time that a job was put back into the queue."""
    saved = [tmp_path / f"hpc_ckpt_{number}.ckpt" for number in (1, 2)]
    for path in saved:
        path.touch()
    short_fit(target_task(weights), tmp_path, max_steps=1, save_every=1)
    assert all(path.is_file() for path in saved)  # without another checkpoint Lightning reads the last one
    short_fit(target_task(weights), tmp_path, max_steps=2, ckpt_path=str(tmp_path / "step-step=1.ckpt"))
    assert not any(path.exists() for path in saved)


def test_without_a_queue_signals_keep_their_handlers(weights, tmp_path):
    before = signal.getsignal(signal.SIGUSR2)
    fit(target_task(weights), SaveBeforeRequeue(str(tmp_path / "latest.ckpt")))
    assert signal.getsignal(signal.SIGUSR2) == before
    assert not list(tmp_path.iterdir())
