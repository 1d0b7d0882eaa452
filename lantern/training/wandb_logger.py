"""Weights & Biases logger of training runs: asks for no key, and a failure does not stop training."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import wandb
from pytorch_lightning.loggers import WandbLogger

from lantern.reporting.wandb_content import weights_artifact
from lantern.reporting.wandb_runs import KEY_FILE, folder_key, wandb_mode

log = logging.getLogger(__name__)


def _or_warn(method: Callable[..., None]) -> Callable[..., None]:
    """Turns any error of `method` into one warning: metrics.csv has the same data, and training must go on."""

    @wraps(method)
    def guarded(self: "TolerantWandbLogger", *args: Any, **kwargs: Any) -> None:
        if self.has_failed:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.has_failed = True
            log.warning("Weights & Biases logging stopped (%s); metrics.csv continues", error)

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
    def log_weights(self, folder: Path, kind: str) -> None:
        """Logs exported weights as an artifact named by their hash, the name that evaluations use."""
        self.experiment.log_artifact(weights_artifact(folder, kind))

    @_or_warn
    def finalize(self, status: str) -> None:
        super().finalize(status)


def wandb_logger(
    project: str, save_dir: str, name: str, tags: Sequence[str], group: str | None = None, checkpoint: str | None = None
) -> TolerantWandbLogger:
    """Offline without an API key, unless WANDB_MODE is set. `checkpoint` (ckpt_path) continues the W&B run of its
    folder, if that has one."""
    wandb.finish()  # a sweep's point before: Lightning would log to its run
    resumed = Path(checkpoint).parent.parent if checkpoint else Path(save_dir)
    key = folder_key(resumed if (resumed / KEY_FILE).is_file() else Path(save_dir))
    quiet = wandb.Settings(silent=True, console="off")  # training's own output is all that the terminal shows
    settings = {"group": group, "job_type": "train", "mode": wandb_mode(), "id": f"{name}-{key}", "resume": "allow"}
    logger = TolerantWandbLogger(
        project=project, save_dir=save_dir, name=name, tags=list(tags), settings=quiet, **settings
    )
    logger._wandb_init.pop("anonymous", None)  # which wandb warns of though Lightning gives it unasked
    return logger
