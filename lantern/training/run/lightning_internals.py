"""Private interfaces of Lightning that a training relies on."""

from math import inf

import pytorch_lightning as pl


def batches_before(task: pl.LightningModule) -> int:
    """Training batches before this one, which key what is drawn at random: a step may accumulate several."""
    return task._trainer.fit_loop.total_batch_idx if task._trainer else 0


def is_validation_due(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the ending training batch; false if one follows every batch."""
    loop = trainer.fit_loop
    return trainer.val_check_batch != 1 and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


def is_validation_next(trainer: pl.Trainer) -> bool:
    """Whether one follows the next training batch, by the number of batches; false if one follows every batch."""
    every = trainer.val_check_batch or inf  # None: by the time
    return every > 1 and (trainer.fit_loop.total_batch_idx + 2) % every == 0


def is_last_step(trainer: pl.Trainer) -> bool:
    """Whether the training batch that ends is the last one: of max_steps, max_epochs or the time."""
    loop = trainer.fit_loop
    is_last_epoch = loop.max_epochs not in (None, -1) and trainer.current_epoch + 1 >= loop.max_epochs
    ends_epochs = is_last_epoch and loop.epoch_loop.batch_progress.is_last_batch
    return trainer.should_stop or ends_epochs or 0 <= trainer.max_steps <= trainer.global_step
