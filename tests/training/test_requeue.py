"""A signal that puts a training's job back into the queue: it waits for the end of the step, which is saved."""

import os
import signal

import pytest
import pytorch_lightning as pl
import torch
from support.tiny_tasks import MemorySplits, target_task

from lantern.training.data_module import TrainingData
from lantern.training.requeue import SaveBeforeRequeue


class SignalledAt(pl.Callback):
    """Sends this process a signal in the middle of a step: gradients are there, the weights are those before it."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


def fit(task, *callbacks: pl.Callback, ckpt_path=None) -> pl.Trainer:
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=8, max_epochs=-1, callbacks=list(callbacks), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        check_val_every_n_epoch=None, val_check_interval=1000,
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


def test_without_a_queue_signals_keep_their_handlers(weights, tmp_path):
    before = signal.getsignal(signal.SIGUSR2)
    fit(target_task(weights), SaveBeforeRequeue(str(tmp_path / "latest.ckpt")))
    assert signal.getsignal(signal.SIGUSR2) == before
    assert not list(tmp_path.iterdir())
