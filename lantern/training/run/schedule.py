"""How long a training runs, and the learning rate on the way: linear warm-up, then a cosine to zero at the end of the
budget. The budget is max_steps, max_epochs or max_time, whichever is used up first; resumed runs continue."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from lantern.errors import LanternError, is_whole

log = logging.getLogger(__name__)


def warmup_cosine(step: int, progress: float, warmup_steps: int) -> float:
    """Factor on the peak learning rate at a step, counted from 0, with `progress` in [0, 1] of the budget used."""
    warmup = min(1.0, (step + 1) / max(1, warmup_steps))
    return warmup * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


_broadcast: WeakKeyDictionary[pl.Trainer, tuple[int, float]] = WeakKeyDictionary()  # step, and its share


def progress_of(trainer: pl.Trainer) -> float:
    """share_of, but equal in all processes, so that they use the same rate and stop at the same step. Steps are equal;
    with a time limit, the first process broadcasts its share once per step, which waits for the device."""
    if not any(isinstance(callback, Timer) for callback in trainer.callbacks):
        return share_of(trainer)
    step, share = _broadcast.get(trainer, (-1, 0.0))
    if step != trainer.global_step:
        share = trainer.strategy.broadcast(share_of(trainer))
        _broadcast[trainer] = trainer.global_step, share
    return share


def share_of(trainer: pl.Trainer) -> float:
    """The used share of the run's budget in this process, in [0, 1]; 0 without a limit."""
    shares = [0.0]
    if trainer.max_steps > 0:
        shares.append(trainer.global_step / trainer.max_steps)
    if trainer.max_epochs and trainer.max_epochs > 0:
        shares.append(trainer.global_step / (trainer.max_epochs * trainer.num_training_batches))
    for callback in trainer.callbacks:
        if isinstance(callback, Timer) and (left := callback.time_remaining("train")) is not None:
            shares.append(1 - left / (left + callback.time_elapsed("train")))
    return min(1.0, max(shares))


class WarmupCosine(pl.Callback):
    """Sets the learning rate of every parameter group before each step, and stops training when the budget is used
    up."""

    def __init__(self, warmup_steps: int) -> None:
        if warmup_steps < 0:
            raise LanternError(f"callbacks.schedule.warmup_steps={warmup_steps} is out of range; give 0 at least")
        self.warmup_steps = warmup_steps

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch, batch_idx: int) -> None:
        factor = warmup_cosine(trainer.global_step, progress_of(trainer), self.warmup_steps)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
        pl_module.log("train/lr_factor", factor)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx: int
    ) -> None:
        if progress_of(trainer) >= 1:
            trainer.should_stop = True  # Lightning validates once more


def tell_limits(limits: Mapping, overrides: Sequence[str], task: str) -> None:
    """Warns of a task's max_time beside steps or epochs that the user has given, and of a training without limits.
    limits: the trainer's settings."""
    given = {override.lstrip("+").split("=")[0] for override in overrides}
    counted = [name for name in ("max_steps", "max_epochs") if is_whole(limits.get(name)) and limits[name] > 0]
    asked = [f"trainer.{name}={limits[name]}" for name in counted if f"trainer.{name}" in given]
    if asked and limits["max_time"] is not None and "trainer.max_time" not in given:
        log.warning(
            "%s ends after trainer.max_time=%s at the latest, which task=%s sets; give trainer.max_time=null for all "
            "of it", asked[0], limits["max_time"], task,
        )  # fmt: skip
    if not counted and limits["max_time"] is None:
        log.warning(
            "this training has no limit: its learning rate never decays, and passes of a recipe that start late never "
            "do; give trainer.max_steps=… or trainer.max_time=…"
        )


def seconds_of(duration: str | None) -> float | None:
    """duration: as trainer.max_time."""
    return Timer(duration).time_remaining()


class StepTimer(Timer):
    """Lightning's time limit, without its validations, at which it logs the seconds and the steps until then: more
    steps in the same time would have more validations. A resumed run counts on from its checkpoint."""

    def __init__(self, duration: str | None) -> None:
        """duration: DD:HH:MM:SS; None for no limit."""
        super().__init__(duration)
        self._trained = self._validated = 0.0  # seconds, since this process began to train

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._trained = self.time_elapsed()
        super().on_validation_start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        measured = {"time/training_s": self._trained, "time/steps": float(trainer.global_step)}
        pl_module.log_dict(measured, sync_dist=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._validated += self.time_elapsed("validate")

    def time_elapsed(self, stage: str = "train") -> float:
        """Seconds of a stage, as Lightning's. Training time excludes finished validations, but not a running one."""
        return super().time_elapsed(stage) - (self._validated if stage == "train" else 0.0)


class WholeTimer(Timer):
    """A time limit for a whole run from here on, tables and validations included. It keeps time for a last validation:
    that of the longest so far, or before the first one an estimate from one of its batches."""

    def __init__(self, duration: str | None) -> None:
        """duration: DD:HH:MM:SS."""
        super().__init__(duration)
        if self._duration is None:
            raise LanternError("+time=all has no time to share; give trainer.max_time=<days:hours:minutes:seconds>")
        self._made_at, self._kept_s = time.monotonic(), 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        used = time.monotonic() - self._made_at
        self._duration -= used
        if trainer.world_size > 1:
            raise LanternError(f"+time=all is for one process, not for {trainer.world_size}; leave it out")
        if self.time_remaining() <= 0:
            raise LanternError(
                f"tables and a validation take all of trainer.max_time, {used + self._kept_s:.0f} s; the tables are "
                "stored now: start again, or give more"
            )

    def on_validation_batch_start(self, trainer: pl.Trainer, *others: object) -> None:
        if trainer.sanity_checking:  # time only the last batch: the first one is slower
            self._start_time["validate"] = time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        seconds = self.time_elapsed("validate") * (sum(trainer.num_val_batches) if trainer.sanity_checking else 1)
        self._duration -= max(0.0, seconds - self._kept_s)
        self._kept_s = max(seconds, self._kept_s)
