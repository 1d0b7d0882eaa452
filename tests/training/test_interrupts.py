"""Signals to a training, against a real Trainer: SIGTERM during its preparation, SIGTERM and Ctrl-C during its steps,
and those that put its job back into the queue; and the end of a killed torchrun's processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LambdaCallback
from pytorch_lightning.demos.boring_classes import BoringModel
from support.paths import ROOT
from support.tiny_tasks import fit_saving, target_task

from lantern.training.run.interrupts import STATUS, Interrupts


class Module(BoringModel):
    """Gets the signal while its data is prepared."""

    went_on, number = False, signal.SIGTERM

    def train_dataloader(self):
        os.kill(os.getpid(), self.number)
        self.went_on = True


class SignalledAt(pl.Callback):
    """Sends this process a signal, so many times, in the middle of a step: gradients are there, weights are old."""

    def __init__(self, step: int, number: int, times: int = 1) -> None:
        self.step, self.number, self.times = step, number, times

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer) -> None:
        for _ in range(self.times if trainer.global_step == self.step else 0):
            os.kill(os.getpid(), self.number)


@pytest.fixture(scope="module")
def undisturbed(weights, tmp_path_factory) -> dict[str, torch.Tensor]:
    """The weights of a training without signals."""
    fit_saving(task := target_task(weights), tmp_path_factory.mktemp("undisturbed"))
    return task.state_dict()


@pytest.fixture
def interrupts(tmp_path):
    """Interrupts that listens, in a process that Ctrl-C interrupts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (listening := Interrupts(f"hydra.run.dir={tmp_path}")).listen()
    yield listening
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def requeued():
    """The signals that reached a handler such as submitit's, which requeues the job and ends the process."""
    received = []

    def requeue(number, frame):
        received.append(number)
        raise SystemExit(255)

    before = signal.signal(signal.SIGUSR2, requeue)
    yield received
    signal.signal(signal.SIGUSR2, before)


def assert_resumes(folder: Path, weights: Path, undisturbed: dict, step: int) -> None:
    """The checkpoint is of this step, and a run that goes on from it ends in the weights of an undisturbed one."""
    assert torch.load(folder / "latest.ckpt", weights_only=True)["global_step"] == step
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning has it ignored
    fit_saving(task := target_task(weights), folder, ckpt_path=str(folder / "latest.ckpt"))
    torch.testing.assert_close(task.state_dict(), undisturbed, rtol=0, atol=0)


@pytest.mark.parametrize(("number", "status", "name"), [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 1, "Ctrl-C")])
def test_a_signal_ends_the_preparation_promptly_with_a_status(number, status, name, interrupts, tmp_path, capsys):
    """Catches preparation that goes on for hours after the signal, an exit status of 0, and an end without a word."""
    module = Module()
    module.number = number
    trainer = pl.Trainer(
        max_steps=6, accelerator="cpu", callbacks=[interrupts], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        trainer.fit(module)
    assert ended.value.code == status
    assert not module.went_on
    assert f"error: ended by {name}; started again" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status", "name", "is_queued"), [
    (signal.SIGTERM, STATUS, "SIGTERM", False), (signal.SIGINT, 1, "Ctrl-C", False),
    (signal.SIGTERM, STATUS, "SIGTERM", True), (signal.SIGUSR2, STATUS, "SIGTERM", True),
])  # fmt: skip
def test_the_step_of_the_signal_is_saved_and_a_continued_run_ends_in_the_same_weights(
    number, status, name, is_queued, interrupts, weights, undisturbed, tmp_path, capsys, request
):
    """Catches steps that are lost behind a sentence which says that the run goes on, and half a step that is saved."""
    received = request.getfixturevalue("requeued") if is_queued else []
    with pytest.raises(SystemExit) as ended:
        fit_saving(target_task(weights), tmp_path, SignalledAt(5, number), interrupts)
    said = capsys.readouterr().err
    assert ended.value.code == status
    assert received == ([number] if number == signal.SIGUSR2 else [])
    assert f"ended by {name} after step 6; started again with hydra.run.dir={tmp_path} it goes on; with" in said
    assert_resumes(tmp_path, weights, undisturbed, 6)


def test_half_a_step_is_not_saved(interrupts, weights, tmp_path, capsys):
    """A second Ctrl-C ends at once. Catches a sentence that promises a checkpoint."""
    with pytest.raises(SystemExit):
        fit_saving(target_task(weights), tmp_path, SignalledAt(2, signal.SIGINT, 2), interrupts)
    assert "no checkpoint is saved yet: started again it begins anew" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.ckpt"))


class SignalledInValidation(pl.Callback):
    def on_validation_batch_start(self, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("sent", [SignalledAt(3, signal.SIGINT), SignalledInValidation()])
def test_a_run_ended_before_or_in_its_first_validation_goes_on_from_the_step_before(
    sent, interrupts, weights, undisturbed, tmp_path, capsys
):
    """Catches steps that are all lost, and a validation that the continued run leaves out, because it counts as
    done."""
    with pytest.raises(SystemExit):
        fit_saving(target_task(weights), tmp_path, sent, interrupts)
    assert f"after step 4; started again with hydra.run.dir={tmp_path} it goes on" in capsys.readouterr().err
    assert_resumes(tmp_path, weights, undisturbed, 3)


def test_ctrl_c_in_a_validation_says_that_it_ends_after_that(interrupts, weights, tmp_path, capsys):
    """Catches "ends after this step" before minutes of validation."""
    sent = LambdaCallback(on_validation_batch_start=lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(SystemExit):
        fit_saving(target_task(weights), tmp_path, interrupts, sent)
    assert "ends after this validation; Ctrl-C again" in capsys.readouterr().err


def test_a_job_in_a_queue_validates_before_it_goes(interrupts, requeued, weights, tmp_path):
    """Catches a validation that the continued run leaves out, because it counts as done."""
    validated = []
    noted = LambdaCallback(on_validation_end=lambda trainer, _: validated.append(trainer.global_step))
    with pytest.raises(SystemExit):
        fit_saving(target_task(weights), tmp_path, noted, SignalledAt(3, signal.SIGUSR2), interrupts)
    assert (validated, torch.load(tmp_path / "latest.ckpt", weights_only=True)["global_step"]) == ([4], 5)


RANK = """
import time
from lantern.training.run.entry import end_with_torchrun
end_with_torchrun()
print("ready", flush=True)
time.sleep(60)
"""
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def is_alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells processes of their parent's end")
@pytest.mark.parametrize("variables", [{"TORCHELASTIC_RUN_ID": "a"}, {}])
def test_a_rank_ends_with_a_killed_torchrun_and_any_other_process_does_not(variables):
    """Catches ranks that train on in the folder of the next start."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")} | variables
    command = [sys.executable, "-c", LAUNCHER, RANK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=given) as launcher:
        assert launcher.stdout.readline() == "ready\n"
        (rank,) = map(int, Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split())
        launcher.kill()
        launcher.wait()
        deadline = time.monotonic() + (20 if variables else 0.5)
        while is_alive(rank) and time.monotonic() < deadline:
            time.sleep(0.02)
        survived = is_alive(rank)
        with suppress(ProcessLookupError):
            os.kill(rank, signal.SIGKILL)
    assert survived == (not variables)
