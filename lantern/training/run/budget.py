"""How long a training runs, and the learning rate on the way: linear warm-up, then a cosine to zero at the end of the
budget. The budget is max_steps, max_epochs or max_time, whichever is used up first; resumed runs continue."""

import logging
import math
import time
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from lantern.cli.sweep_callback import Points
from lantern.errors import LanternError, check_least

log = logging.getLogger(__name__)


def warmup_cosine(step: int, progress: float, warmup_steps: int) -> float:
    """Factor on the peak learning rate at a step, counted from 0, with `progress` in [0, 1] of the budget used."""
    warmup = min(1.0, (step + 1) / max(1, warmup_steps))
    return warmup * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


_broadcast: WeakKeyDictionary[pl.Trainer, tuple[int, float]] = WeakKeyDictionary()  # step, and its share


def progress_of(trainer: pl.Trainer) -> float:
    """share_of, but equal in all processes, so that they use the same rate and stop at the same step. Steps are equal;
    with a time limit, the first process broadcasts its share once per step, which waits for the device."""
    if all(timer.time_remaining() is None for timer in _timers(trainer)):
        return share_of(trainer)
    step, share = _broadcast.get(trainer, (-1, 0.0))
    if step != trainer.global_step:
        share = trainer.strategy.broadcast(share_of(trainer))
        _broadcast[trainer] = trainer.global_step, share
    return share


def share_of(trainer: pl.Trainer) -> float:
    """The used share of the run's budget in this process, in [0, 1]; 0 without a limit."""
    shares = [0.0, *(trainer.global_step / most for most in _most_steps(trainer))]
    for timer in _timers(trainer):
        if (left := timer.time_remaining()) is not None:
            shares.append(1 - left / (left + timer.time_elapsed()))
    return min(1.0, max(shares))


def steps_left(trainer: pl.Trainer, step_s: float, validation_s: float) -> float | None:
    """Steps until the first limit; None without one. step_s, validation_s: seconds of a step and its validations."""
    left: list[float] = [most - trainer.global_step for most in _most_steps(trainer)]
    for timer in _timers(trainer):
        if (seconds := timer.time_remaining()) is not None:
            left.append(max(0.0, seconds) / (step_s + (0.0 if isinstance(timer, StepBudget) else validation_s)))
    return min(left, default=None)


def _most_steps(trainer: pl.Trainer) -> list[int]:
    """By the limits that count steps or epochs."""
    is_counted = (trainer.max_epochs or 0) > 0 and trainer.num_training_batches < math.inf  # before the first epoch
    of_an_epoch = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches) if is_counted else 0
    by_epochs = trainer.max_epochs * of_an_epoch if is_counted else 0
    return [most for most in (trainer.max_steps, by_epochs) if most > 0]


def _timers(trainer: pl.Trainer) -> list[Timer]:
    return [callback for callback in trainer.callbacks if isinstance(callback, Timer)]


class WarmupCosine(pl.Callback):
    """Sets each parameter group's learning rate before each step, and stops training when the budget is used up."""

    def __init__(self, warmup_steps: int) -> None:
        check_least("callbacks.schedule", 0, warmup_steps=warmup_steps)
        self.warmup_steps = warmup_steps

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch, batch_idx: int) -> None:
        factor = warmup_cosine(trainer.global_step, progress_of(trainer), self.warmup_steps)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
        pl_module.log("train/lr_factor", factor)

    def on_train_batch_end(self, trainer: pl.Trainer, *others: object) -> None:
        if progress_of(trainer) >= 1:
            trainer.should_stop = True  # Lightning validates once more


class Budget(Timer):
    """The limit of time, for steps and the validations between them, instead of Lightning's. Says which limits hold."""

    def __init__(self, duration: str | None) -> None:
        try:
            super().__init__(duration)
        except (AttributeError, MisconfigurationException):
            raise LanternError(
                f"trainer.max_time={duration} is no time; give <days:hours:minutes:seconds>, or null for no limit"
            ) from None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        counts = {"max_steps": trainer.max_steps, "max_epochs": trainer.max_epochs or -1}
        limits = [f"trainer.{name}={limit}" for name, limit in counts.items() if limit > 0]
        if self._duration is None and not limits:
            log.warning(
                "this training has no limit: its learning rate never decays, and passes of a recipe that start late "
                "never do; give trainer.max_steps=… or trainer.max_time=…"
            )
        elif self._duration is not None and limits:
            log.warning("ends at the first of %s and trainer.max_time; null is no limit", " and ".join(limits))

    def foreseen_s(self, table_s: float | None, validation_s: float) -> float | None:
        """Seconds left before the first step; None if they are not known. table_s: of the last table, None before it;
        validation_s: of the last validation."""
        left_s = self.time_remaining()
        return None if table_s is None or left_s is None else table_s + left_s + validation_s


class StepBudget(Budget):
    """A Budget without its validations, at which it logs the seconds and the steps until then: more steps in the same
    time would have more validations. A resumed run counts on from its checkpoint."""

    _trained = _validated = 0.0  # seconds, since this process began to train

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._trained = self.time_elapsed()
        super().on_validation_start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        measured = {"time/training_s": self._trained, "time/steps": float(trainer.global_step)}
        pl_module.log_dict(measured, sync_dist=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._validated += 0.0 if trainer.sanity_checking else self.time_elapsed("validate")  # before the first step

    def time_elapsed(self, stage: str = "train") -> float:
        """Seconds of a stage, as Lightning's. Training time excludes finished validations, but not a running one."""
        return super().time_elapsed(stage) - (self._validated if stage == "train" else 0.0)


class WholeBudget(Budget):
    """A Budget from the command on, tables and validations included. It keeps time for a last validation: that of the
    longest so far, or before the first one an estimate from one of its batches; none where no step would fit."""

    def __init__(self, duration: str | None) -> None:
        super().__init__(duration)
        if self._duration is None:
            raise LanternError("+time=all has no time to share; give trainer.max_time=<days:hours:minutes:seconds>")
        self._began, self._kept_s = time.monotonic() if Points.began is None else Points.began, 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        used = time.monotonic() - self._began
        self._duration -= used
        if trainer.world_size > 1:
            raise LanternError(f"+time=all is for one process, not for {trainer.world_size}; leave it out")
        if self.time_remaining() <= 0:  # the last validation may end late, a training without steps may not
            self._duration, self._kept_s = self._duration + self._kept_s, 0.0
        if self.time_remaining() <= 0:
            spent = f"libraries and tables took {used:.0f} s and trainer.max_time is over"
            raise LanternError(f"{spent}; the tables are stored: start again, or give more")

    def foreseen_s(self, table_s: float | None, validation_s: float) -> float | None:
        return max(0.0, self._duration + self._kept_s - (time.monotonic() - self._began))

    def on_validation_batch_start(self, trainer: pl.Trainer, *others: object) -> None:
        if trainer.sanity_checking:  # time only the last batch: the first one is slower
            self._start_time["validate"] = time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        seconds = self.time_elapsed("validate") * (sum(trainer.num_val_batches) if trainer.sanity_checking else 1)
        self._duration -= max(0.0, seconds - self._kept_s)
        self._kept_s = max(seconds, self._kept_s)


def compares_origins(trainer: pl.Trainer) -> bool:
    """Whether a training ends with its task's comparison of training with held-out images."""
    is_able = hasattr(getattr(trainer, "lightning_module", None), "compare_origins")
    return is_able and trainer.world_size == 1 and not any(isinstance(c, WholeBudget) for c in trainer.callbacks)


def share_s(max_time: str | None, share: float | None) -> float:
    """Seconds of a share of max_time; inf without one."""
    whole_s = Timer(max_time).time_remaining()
    return share * whole_s if share and whole_s else math.inf
