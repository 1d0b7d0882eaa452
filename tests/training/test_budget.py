"""How long a training runs: its learning rate, its clock, and what is said of its limits."""

import math
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from lantern.errors import LanternError
from lantern.training.run.budget import (
    Budget,
    StepBudget,
    WarmupCosine,
    WholeBudget,
    progress_of,
    share_of,
    warmup_cosine,
)  # fmt: skip


def test_rate_climbs_then_falls_to_zero():
    assert [warmup_cosine(step, 0.0, warmup_steps=4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warmup_cosine(100, 0.5, warmup_steps=4) == pytest.approx(0.5)
    assert warmup_cosine(100, 1.0, warmup_steps=4) == pytest.approx(0)
    assert warmup_cosine(100, 1.3, warmup_steps=4) == pytest.approx(0)  # the last batch exceeds the budget
    assert warmup_cosine(0, 0.0, warmup_steps=0) == 1


def test_the_first_limit_that_is_reached_ends_the_schedule():
    """Catches epochs that end a run in the middle of its schedule."""

    def share(**limits: float) -> float:
        usual = {"accumulate_grad_batches": 1, "num_training_batches": 4}
        return share_of(SimpleNamespace(global_step=6, callbacks=[], **usual | limits))

    assert share(max_steps=-1, max_epochs=-1) == 0
    assert share(max_steps=-1, max_epochs=3) == 0.5
    assert share(max_steps=8, max_epochs=3) == 0.75
    assert share(max_steps=-1, max_epochs=6, accumulate_grad_batches=3) == 0.5  # two steps an epoch
    assert share(max_steps=-1, max_epochs=2, num_training_batches=math.inf) == 0  # before the first epoch


class OfTwo:
    """The trainer of the second of two processes; the first has used half of the time. Counts broadcasts."""

    max_steps, max_epochs, optimizers, should_stop = 10, -1, (), False

    def __init__(self, *callbacks: Timer) -> None:
        self.global_step, self.callbacks, self.broadcasts, self.strategy = 0, callbacks, 0, self

    def broadcast(self, share: float) -> float:
        self.broadcasts += 1
        return 0.5


@pytest.mark.parametrize("timers", [(Budget(None),), (Budget("00:01:00:00"),)])
def test_processes_agree_on_the_progress_at_most_once_a_step(timers):
    """Catches two to four waits for the device in every step, also where all processes count the same steps, and a
    share of the time that is the process's own, or an earlier step's."""
    is_timed = timers[0].time_remaining() is not None
    trainer, schedule, module = OfTwo(*timers), WarmupCosine(1), SimpleNamespace(log=lambda *_: None)
    for step in range(5):
        schedule.on_train_batch_start(trainer, module, None, step)
        assert progress_of(trainer) == (0.5 if is_timed else step / 10)
        trainer.global_step += 1
        schedule.on_train_batch_end(trainer, module, None, None, step)
    assert trainer.broadcasts == (6 if is_timed else 0)  # the first step's, and one behind each


def test_the_time_of_a_training_leaves_validation_out_and_goes_on_after_resuming(monkeypatch):
    """Catches fast recipes, which validate more often, that get fewer minutes of steps."""
    now = [100.0]
    monkeypatch.setattr("pytorch_lightning.callbacks.timer.time.monotonic", lambda: now[0])
    first, resumed = (StepBudget("00:00:01:00") for _ in range(2))
    trainer = pl.Trainer(callbacks=[resumed], max_time="00:00:01:00", logger=False, accelerator="cpu")
    assert [callback for callback in trainer.callbacks if isinstance(callback, Timer)] == [resumed]  # in its place
    logged = {}
    module = SimpleNamespace(log_dict=lambda values, **_: logged.update(values))
    first.on_train_start(trainer, None)
    for _ in range(2):
        now[0] += 10
        first.on_validation_start(trainer, None)
        now[0] += 1000
        first.on_validation_epoch_end(trainer, module)
        first.on_validation_end(trainer, None)
    assert logged == {"time/training_s": 20.0, "time/steps": 0.0}
    now[0] += 5
    assert (first.time_elapsed(), first.time_remaining(), first.time_elapsed("validate")) == (25, 35, 1000)
    resumed.load_state_dict(first.state_dict())
    now[0] += 1000
    resumed.on_train_start(trainer, None)
    now[0] += 5
    assert share_of(trainer) == 0.5
    resumed.on_train_batch_end(trainer)
    assert not trainer.should_stop
    now[0] += 30
    resumed.on_train_batch_end(trainer)
    assert trainer.should_stop


def whole_run(monkeypatch, tables_s: float, batches: int = 4) -> tuple[WholeBudget, SimpleNamespace, list[float]]:
    """A timer of five minutes after tables and validation batches of 40 and 10 seconds, its trainer and its clock."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("lantern.cli.sweep_callback.Points.began", now[0] - 30)  # libraries
    timer, trainer = WholeBudget("00:00:05:00"), SimpleNamespace(world_size=1, num_val_batches=[batches])
    trainer.sanity_checking, trainer.callbacks, trainer.global_step = True, [timer], 0
    trainer.max_steps, trainer.max_epochs = -1, -1
    now[0] += tables_s - 30
    timer.on_validation_start(trainer, None)
    for number, seconds in enumerate((40, 10)):
        timer.on_validation_batch_start(trainer, None, None, number)
        now[0] += seconds
    timer.on_validation_end(trainer, None)
    trainer.sanity_checking = False
    return timer, trainer, now


def test_tables_training_and_validations_fit_the_time_of_the_whole_command(monkeypatch):
    """Catches a command of five minutes that takes fourteen on slow cores: time that begins behind the tables, a last
    validation that comes on top, one foreseen by its slow first batch, and a schedule that begins half used up."""
    timer, trainer, now = whole_run(monkeypatch, tables_s=100)
    timer.on_train_start(trainer, None)
    assert timer.time_remaining() == 300 - 100 - 50 - 4 * 10
    assert share_of(trainer) == 0
    now[0] += 20
    timer.on_validation_start(trainer, None)
    now[0] += 60  # longer than foreseen, and so will the last one be
    timer.on_validation_end(trainer, None)
    assert timer.time_remaining() == 110 - 20 - 60 - 20
    now[0] += 10
    timer.on_validation_start(trainer, None)
    now[0] += 20  # a short one changes nothing but the time
    timer.on_validation_end(trainer, None)
    assert timer.time_remaining() == -20


def test_a_time_that_tables_use_up_is_an_error_and_what_they_leave_goes_to_steps(monkeypatch):
    """Catches a start that ends without a step after 246 of 300 seconds, because no validation fits behind one."""
    timer, trainer, _ = whole_run(monkeypatch, tables_s=196, batches=30)
    timer.on_train_start(trainer, None)
    assert (timer.time_remaining(), share_of(trainer)) == (54, 0)
    timer, trainer, _ = whole_run(monkeypatch, tables_s=250, batches=5)
    with pytest.raises(LanternError, match=r"took 300 s and trainer\.max_time is over"):
        timer.on_train_start(trainer, None)
    trainer.world_size = 2
    with pytest.raises(LanternError, match="one process"):
        whole_run(monkeypatch, tables_s=0)[0].on_train_start(trainer, None)
    with pytest.raises(LanternError, match=r"trainer\.max_time"):
        WholeBudget(None)
