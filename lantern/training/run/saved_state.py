"""Checkpoints of a training: replaced whole while the one before is kept, and saved so that no validation is lost."""

import os
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.callbacks import ModelCheckpoint

from lantern.errors import unwritable
from lantern.runtime.files import is_intact_zip, replace_file
from lantern.training.run.lightning_internals import is_last_step, is_validation_due


class WholeCheckpoints(TorchCheckpointIO):
    """Writes each checkpoint to a temporary path, flushes it to disk, and only then renames it. An intact file that
    has the final name is kept at `previous_of`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Called by Lightning in the first process."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = previous_of(path) if is_intact_zip(path) else None
            replace_file(path, lambda file: _write_flushed(checkpoint, file), kept)
        except OSError as error:
            raise unwritable(path, error) from error


def _write_flushed(checkpoint: dict[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())


def previous_of(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def whole_checkpoint(path: Path) -> Path | None:
    """The checkpoint at `path`, or the one before it where that is torn or missing; None if neither is whole."""
    return next((found for found in (path, previous_of(path)) if is_intact_zip(found)), None)


class LatestCheckpoint(ModelCheckpoint):
    """The checkpoint from which a killed run resumes. A step right before a validation is not saved, because Lightning
    would count that validation as done. The last step is also saved, for ckpt_path=last."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if is_validation_due(trainer):
            return
        if is_last_step(trainer):
            self.save(trainer)
        else:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if is_last_step(trainer):
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """This step, now; called in all processes."""
        trainer.save_checkpoint(self.path, weights_only=False)

    @property
    def path(self) -> Path:
        return Path(self.format_checkpoint_name({}))


class BestCheckpoint(ModelCheckpoint):
    """Keeps the best validation score so far, even if a run is resumed in another folder. Lightning would reset it,
    and the next validation would count as the best."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})
