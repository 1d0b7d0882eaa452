"""Weights & Biases for training runs: never asks for a key, and never ends a run when it fails."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import WandbLogger

from lantern.tracking import wandb_mode

log = logging.getLogger(__name__)


def _or_warn(method: Callable[..., None]) -> Callable[..., None]:
    """Whatever goes wrong on the way to a server: metrics.csv has it all, and hours of training are worth more."""

    @wraps(method)
    def guarded(self: "TolerantWandbLogger", *args: Any, **kwargs: Any) -> None:
        if self.has_failed:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.has_failed = True
            log.warning("Weights & Biases stopped taking this run (%s); metrics.csv goes on", error)

    return guarded


class TolerantWandbLogger(WandbLogger):
    """Lightning's logger, silent after its first failure."""

    has_failed = False

    @_or_warn
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics(metrics, step)

    @_or_warn
    def log_hyperparams(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().log_hyperparams(params, *args, **kwargs)

    @_or_warn
    def save(self) -> None:
        super().save()

    @_or_warn
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        super().after_save_checkpoint(checkpoint_callback)

    @_or_warn
    def finalize(self, status: str) -> None:
        super().finalize(status)


def wandb_logger(
    project: str, save_dir: str, name: str, tags: Sequence[str], group: str | None = None
) -> TolerantWandbLogger:
    """Offline unless a key is at hand or WANDB_MODE says otherwise."""
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    return TolerantWandbLogger(
        project=project, save_dir=save_dir, name=name, tags=list(tags), group=group, job_type="train", mode=wandb_mode()
    )
