"""Weights & Biases for training runs: never asks for a key, and resumes the run a checkpoint belongs to."""

from collections.abc import Sequence
from pathlib import Path

from pytorch_lightning.loggers import WandbLogger

from lantern.tracking import wandb_mode


def wandb_logger(project: str, save_dir: str, name: str, tags: Sequence[str], group: str | None = None) -> WandbLogger:
    """Offline unless a key is at hand or WANDB_MODE says otherwise."""
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    return WandbLogger(
        project=project, save_dir=save_dir, name=name, tags=list(tags), group=group, job_type="train", mode=wandb_mode()
    )
