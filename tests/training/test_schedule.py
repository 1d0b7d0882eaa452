from types import SimpleNamespace

import pytest
from pytorch_lightning.callbacks import Timer

from lantern.training.run.schedule import WarmupCosine, progress_of, share_of, warmup_cosine


def test_rate_climbs_then_falls_to_zero():
    assert [warmup_cosine(step, 0.0, warmup_steps=4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warmup_cosine(100, 0.5, warmup_steps=4) == pytest.approx(0.5)
    assert warmup_cosine(100, 1.0, warmup_steps=4) == pytest.approx(0)


def test_rate_stays_zero_past_the_budget():
    """A cosine without a bound would rise again if the last batch exceeded the budget."""
    assert warmup_cosine(100, 1.3, warmup_steps=4) == pytest.approx(0)


def test_no_warmup_means_full_rate_at_once():
    assert warmup_cosine(0, 0.0, warmup_steps=0) == 1


def test_the_first_limit_that_is_reached_ends_the_schedule():
    """Catches epochs that end a run in the middle of its schedule."""

    def share(**limits: int) -> float:
        trainer = SimpleNamespace(
            global_step=6, num_training_batches=4, accumulate_grad_batches=1, callbacks=[], **limits
        )  # fmt: skip
        return share_of(trainer)

    assert share(max_steps=-1, max_epochs=-1) == 0
    assert share(max_steps=-1, max_epochs=3) == 0.5
    assert share(max_steps=8, max_epochs=3) == 0.75


def test_an_epoch_has_as_many_steps_as_its_batches_are_gathered_to():
    """Five batches by twos are three steps. Catches a rate that is still high where the last epoch ends."""
    trainer = SimpleNamespace(
        global_step=6, num_training_batches=5, accumulate_grad_batches=2, max_steps=-1, max_epochs=4, callbacks=[]
    )  # fmt: skip
    assert share_of(trainer) == 0.5


class OfTwo:
    """The trainer of the second of two processes; the first has used half of the time. Counts broadcasts."""

    max_steps, max_epochs, optimizers, should_stop = 10, -1, (), False

    def __init__(self, *callbacks: Timer) -> None:
        self.global_step, self.callbacks, self.broadcasts, self.strategy = 0, callbacks, 0, self

    def broadcast(self, share: float) -> float:
        self.broadcasts += 1
        return 0.5


@pytest.mark.parametrize("timers", [(), (Timer("00:01:00:00"),)])
def test_processes_agree_on_the_progress_at_most_once_a_step(timers):
    """Catches two to four waits for the device in every step, also where all processes count the same steps, and a
    share of the time that is the process's own, or an earlier step's."""
    trainer, schedule, module = OfTwo(*timers), WarmupCosine(1), SimpleNamespace(log=lambda *_: None)
    for step in range(5):
        schedule.on_train_batch_start(trainer, module, None, step)
        assert progress_of(trainer) == (0.5 if timers else step / 10)
        trainer.global_step += 1
        schedule.on_train_batch_end(trainer, module, None, None, step)
    assert trainer.broadcasts == (6 if timers else 0)  # the first step's, and one behind each
