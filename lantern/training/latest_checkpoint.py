"""The checkpoint that a killed run goes on from, saved at no step that is about to be validated: Lightning would count
that validation as done."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint


def is_validation_due(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the training batch that ends, and not the next one as well."""
    loop = trainer.fit_loop
    return trainer.val_check_batch != 1 and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


class LatestCheckpoint(ModelCheckpoint):
    """Waits for the step behind a validation; saves the last step as well, from which ckpt_path=last goes on."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if is_validation_due(trainer):
            return
        if _ends(trainer):
            self.save(trainer)
        else:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if _ends(trainer):
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """This step, now; called in all processes."""
        trainer.save_checkpoint(self.path, weights_only=False)

    @property
    def path(self) -> Path:
        """The file that is replaced at each save."""
        return Path(self.format_checkpoint_name({}))


def _ends(trainer: pl.Trainer) -> bool:
    """Whether this step is the last one: of max_steps, of max_epochs, or of the time that is given."""
    loop = trainer.fit_loop
    is_last_epoch = loop.max_epochs not in (None, -1) and trainer.current_epoch + 1 >= loop.max_epochs
    is_last = is_last_epoch and loop.epoch_loop.batch_progress.is_last_batch
    return trainer.should_stop or is_last or 0 <= trainer.max_steps <= trainer.global_step
