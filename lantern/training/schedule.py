"""Learning rate by progress: linear warm-up, then a cosine to zero at the end of the run's budget.
The budget is max_steps, max_epochs or max_time, whichever is used up first; resumed runs continue the schedule."""

import math
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer


def warmup_cosine(step: int, progress: float, warmup_steps: int) -> float:
    """Factor on the peak learning rate at a step, counted from 0, with `progress` in [0, 1] of the budget used."""
    warmup = min(1.0, (step + 1) / max(1, warmup_steps))
    return warmup * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


_broadcast: WeakKeyDictionary[pl.Trainer, tuple[int, float]] = WeakKeyDictionary()  # step, and its share


def progress_of(trainer: pl.Trainer) -> float:
    """The same share_of in all processes, so that they use the same rate and stop at the same step. All count the same
    steps; of time, the share of the first process is broadcast, which waits for the device, once a step."""
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
        steps = -(-trainer.num_training_batches // trainer.accumulate_grad_batches)  # of an epoch, the last one short
        shares.append(trainer.global_step / (trainer.max_epochs * steps))
    for callback in trainer.callbacks:
        if isinstance(callback, Timer) and (left := callback.time_remaining("train")) is not None:
            shares.append(1 - left / (left + callback.time_elapsed("train")))
    return min(1.0, max(shares))


class WarmupCosine(pl.Callback):
    """Sets the learning rate of every parameter group before each step, and stops training when the budget is used
    up."""

    def __init__(self, warmup_steps: int) -> None:
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
