"""The checkpoint that a killed run goes on from, saved at no step that is about to be validated: Lightning would count
that validation as done."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint


def is_validation_due(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the training batch that ends, and not the next one as well."""
    loop = trainer.fit_loop
    return trainer.val_check_batch != 1 and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


class LatestCheckpoint(ModelCheckpoint):
    """Waits for the step behind a validation."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not is_validation_due(trainer):
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
