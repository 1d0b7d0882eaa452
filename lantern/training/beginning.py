"""A training takes its folder over: what it writes there first, and what of an earlier run it keeps beside."""

from itertools import count
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from lantern.identity import write_provenance
from lantern.models.checkpoints import weights_file
from lantern.runtime.files import replace_text
from lantern.training.saved_state import previous_of

CONFIG, METRICS = "config.yaml", "metrics.csv"
NAMED = {"last": "latest", "best": "best"}  # values of ckpt_path and files of a run's checkpoints folder


class Beginning(pl.Callback):
    """Makes the folder this run's at the first step, once nothing speaks against the training any more. What an earlier
    run left there is kept beside: a restart would take its weights for this run's, or go on from its checkpoint."""

    def __init__(
        self, folder: Path, config: dict[str, Any], device: str, weights: dict[str, str], checkpoint: str | None
    ) -> None:  # fmt: skip
        """device: the one that trains; weights: hashes of what is read; checkpoint: what the run goes on from."""
        self.folder, self.config, self.device, self.weights = folder, config, device, weights
        self.checkpoint, self.has_begun = checkpoint, False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begin(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begin(trainer)  # where the checkpoint leaves nothing to train

    @rank_zero_only
    def begin(self, trainer: pl.Trainer) -> None:
        """Writes config.yaml and provenance.json, and logs the configuration. LanternError if the folder is not
        writable."""
        if self.has_begun:
            return
        self.has_begun = True
        keep_old_weights(self.folder, self.config["task_name"])
        if starts_anew(self.folder, self.checkpoint):
            keep_old_checkpoints(self.folder)
        write_provenance(self.folder, self.config | {"device": self.device}, self.weights)
        replace_text(self.folder / CONFIG, OmegaConf.to_yaml(self.config))
        for logger in trainer.loggers:
            logger.log_hyperparams(self.config)


@rank_zero_only
def keep_old_metrics(folder: Path) -> None:
    """Renames metrics.csv of an earlier run in this folder, which a new logger would delete, to metrics-1.csv, …"""
    if (path := folder / METRICS).is_file():
        _keep_beside(path)


@rank_zero_only
def keep_old_weights(folder: Path, task_name: str) -> None:
    """Renames the weights that an earlier run has exported here to <task_name>-1, …: a run with them is a finished
    one, which no restart would continue."""
    if weights_file(exported := folder / task_name).is_file():
        _keep_beside(exported)


def keep_old_checkpoints(folder: Path) -> None:
    """Renames the latest checkpoints of an earlier run in this folder, to latest-1.ckpt, …"""
    latest = latest_of(folder)
    for path in (latest, previous_of(latest)):
        if path.is_file():
            _keep_beside(path)


def latest_of(folder: Path) -> Path:
    """The checkpoint that a killed run in this folder goes on from."""
    return folder / "checkpoints" / f"{NAMED['last']}.ckpt"


def starts_anew(folder: Path, checkpoint: str | None) -> bool:
    """Whether a run starts from the beginning, or from a checkpoint that is not one of its folder's latest."""
    own = [path.resolve() for path in (latest_of(folder), previous_of(latest_of(folder)))]
    return checkpoint is None or Path(checkpoint).resolve() not in own


def _keep_beside(path: Path) -> None:
    """Renames a file or folder to the first of name-1, name-2, … that is free."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
    path.rename(next(name for name in names if not name.exists()))
