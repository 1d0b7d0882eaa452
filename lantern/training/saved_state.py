"""Checkpoints that are replaced whole while the one before is kept. A torn one is recognised by its checksums, and the
one before is used."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO

from lantern.errors import unwritable
from lantern.runtime.files import is_intact_zip, replace_file


class WholeCheckpoints(TorchCheckpointIO):
    """Writes each checkpoint beside its final name, flushes it to disk, and only then gives it that name. A whole file
    of that name is kept as its `previous_of`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Called by Lightning in the first process. LanternError if the file cannot be written."""
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
