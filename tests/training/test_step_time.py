"""The clocks of a training: they leave validations out and go on after resuming."""

from types import SimpleNamespace

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from lantern.training.run import monitoring as step_time
from lantern.training.run.schedule import share_of


def test_the_time_of_steps_leaves_validation_out_and_goes_on_after_resuming(monkeypatch):
    """Catches seconds a step that grow with the validation set, and a clock that restarts with a resumed run."""
    now, logged = [100.0], {}
    monkeypatch.setattr(step_time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(step_time, "CpuContention", lambda: SimpleNamespace(cores=lambda: 0.5))
    task = SimpleNamespace(log_dict=lambda values, **_: logged.update(values))
    first, resumed = step_time.StepTime(), step_time.StepTime()

    def trains(clock: step_time.StepTime, seconds: float, step: int) -> None:
        """So long, then a validation of a minute."""
        now[0] += seconds
        clock.on_validation_start(None, task)
        clock.on_validation_epoch_end(SimpleNamespace(global_step=step), task)
        now[0] += 60
        clock.on_validation_end(None, task)

    first.on_train_start(None, task)
    trains(first, 8.0, 4)
    assert logged == {"time/training_s": 8.0, "time/steps": 4.0, "time/other_cores": 0.5}
    now[0] += 2
    resumed.load_state_dict(first.state_dict())  # between two validations
    now[0] += 1000
    resumed.on_train_start(None, task)
    trains(resumed, 5.0, 8)
    assert (logged["time/training_s"], logged["time/steps"]) == (15.0, 8.0)


def test_the_time_of_a_training_leaves_validation_out_and_goes_on_after_resuming(monkeypatch):
    """Catches fast recipes, which validate more often, that get fewer minutes of steps."""
    now = [100.0]
    monkeypatch.setattr("pytorch_lightning.callbacks.timer.time.monotonic", lambda: now[0])
    first, resumed = (step_time.StepTimer("00:00:01:00") for _ in range(2))
    trainer = pl.Trainer(callbacks=[resumed], max_time="00:00:01:00", logger=False, accelerator="cpu")
    assert [callback for callback in trainer.callbacks if isinstance(callback, Timer)] == [resumed]  # in its place
    first.on_train_start(trainer, None)
    for _ in range(2):
        now[0] += 10
        first.on_validation_start(trainer, None)
        now[0] += 1000
        first.on_validation_end(trainer, None)
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
