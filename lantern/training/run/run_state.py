"""What a training leaves on disk: checkpoints that are replaced whole, and the folder that a killed run resumes in.
Every checkpoint has its last validation, step and figures, and what it was measured on: of these are the exported step,
its figures, and whether a best score of another run counts."""

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from lightning_fabric.plugins import TorchCheckpointIO
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_only

from lantern.data.splits import Splits
from lantern.drafters.export import VALIDATED
from lantern.errors import LanternError, writing
from lantern.identity import digest, user_code
from lantern.models.checkpoints import local_hashes, weights_file
from lantern.runtime.files import EXPORTED, is_file, rename_aside, replace_file, replace_text
from lantern.runtime.overrides import leaves
from lantern.runtime.provenance import read_provenance, write_provenance
from lantern.training.run.budget import progress_of
from lantern.training.run.lightning_internals import is_last_step, is_validation_due, is_validation_next
from lantern.types import reader_of

CONFIG, METRICS = "config.yaml", "metrics.csv"
CODE, CAPTIONS = "user's code", "training captions"  # keys in the hashes of what a run has read
MEASURED_ON = "measured_on"  # key of a checkpoint: what decides the figures of a validation
NAMED = {"last": "latest", "best": "best"}  # values of ckpt_path and files of a run's checkpoints folder
MAX_SHOWN, WIDTH = 3, 60  # of settings that differ: how many, characters of a value
MAY_DIFFER_ON_RESUME = {  # these change no weight
    "accelerator", "device", "devices", "num_nodes", "budget_gib", "cache_dir", "sweep", "logger", "num_workers",
    "log_every_n_steps", "default_root_dir", "dirpath", "optimized_metric",
}  # fmt: skip


class WholeCheckpoints(TorchCheckpointIO):
    """Writes checkpoints by replace_file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Called by Lightning in the first process."""
        path = Path(path)
        with writing(path):
            replace_file(path, partial(_write, checkpoint))


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    with open(path, "wb") as file:  # by its path torch would raise a RuntimeError for a full disk
        torch.save(checkpoint, file)


class LatestCheckpoint(ModelCheckpoint):
    """The checkpoint from which a killed run resumes. A step right before a validation is not saved, because Lightning
    would count that validation as done; the step before it is, for a run that is ended within the validation. The last
    step is also saved, for ckpt_path=last."""

    _used = 0.0  # share of the budget, at the end of the step before

    def on_train_batch_end(self, trainer: pl.Trainer, *others: Any) -> None:
        before, self._used = self._used, progress_of(trainer)
        if is_validation_due(trainer):
            return
        is_nearly_last = self._used + 1.5 * (self._used - before) >= 1  # steps take different times
        if is_last_step(trainer) or is_validation_next(trainer) or is_nearly_last:
            self.save(trainer)
        else:
            super().on_train_batch_end(trainer, *others)

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
    """Keeps the best validation score so far, also of a run that goes on in another folder, where Lightning would
    forget it; its checkpoint is copied there, since the run before may go on as well. What was measured on other
    images, RunFolder leaves out."""

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        self._resumed_from = Path(trainer.ckpt_path).parent

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict.get("best_model_path"):
            before = Path(state_dict["best_model_path"])  # of a folder that may have been moved or copied since
            own, beside = Path(self.dirpath) / before.name, self._resumed_from / before.name
            found = beside if beside.is_file() else before
            if not found.is_file():
                return print(f"{before} is gone: the best step so far is forgotten")
            if found.resolve() != own.resolve() and not rank_zero_only.rank:
                replace_file(own, partial(shutil.copyfile, found))
            scores = {str(own): score for score in state_dict["best_k_models"].values()}
            paths = {"best_model_path": str(own), "kth_best_model_path": str(own), "best_k_models": scores}
            state_dict = state_dict | paths
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})


class RunFolder(pl.Callback):
    """Makes the folder this run's at the first step, after all checks have passed. What an earlier run left there is
    renamed: a restart would take its weights for this run's, or resume from its checkpoint. Adds to each checkpoint
    the last validation and what it was measured on."""

    def __init__(
        self, folder: Path, config: dict[str, Any], device: str, weights: dict[str, str], checkpoint: str | None
    ) -> None:  # fmt: skip
        """device: the one that trains; weights: hashes of what is read; checkpoint: what the run resumes from."""
        self.folder, self.config, self.device, self.weights = folder, config, device, weights
        self.checkpoint, self._is_claimed = checkpoint, False
        self._measured_on, self.validated = digest(_measurement(config, weights)), {}

    @rank_zero_only
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Writes config.yaml and provenance.json, and logs the configuration."""
        if self._is_claimed:
            return
        self._is_claimed = True
        (self.folder / EXPORTED).unlink(missing_ok=True)
        if weights_file(exported := self.folder / self.config["task_name"]).is_file():
            rename_aside(exported)
        latest = latest_of(self.folder)
        is_resumed = self.checkpoint is not None and Path(self.checkpoint).resolve() == latest.resolve()
        if latest.is_file() and not is_resumed:
            rename_aside(latest)
        write_provenance(self.folder, self.config | {"device": self.device}, self.weights)
        replace_text(self.folder / CONFIG, OmegaConf.to_yaml(self.config))
        for logger in trainer.loggers:
            logger.log_hyperparams(self.config)

    on_fit_end = on_train_start  # where the checkpoint leaves nothing to train

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            figures = {name: float(value) for name, value in trainer.callback_metrics.items() if name[:4] == "val/"}
            self.validated = {"step": trainer.global_step, "figures": figures}

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        checkpoint |= {VALIDATED: self.validated, MEASURED_ON: self._measured_on}

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Keeps a best score from a checkpoint only if it was measured on the same images with the same target."""
        if checkpoint.get(MEASURED_ON, self._measured_on) == self._measured_on:
            self.validated = checkpoint.get(VALIDATED, {})
            return
        kept = {key: state for key, state in checkpoint["callbacks"].items() if not key.startswith("BestCheckpoint")}
        checkpoint["callbacks"] = kept
        if trainer.is_global_zero:
            print(f"{self.checkpoint} has other data, another seed or target: its best score does not count here")


def _measurement(config: dict[str, Any], weights: Mapping[str, str]) -> dict[str, Any]:
    """What decides a validation's figures, and the data that a best score belongs to."""
    validation = (config.get("batches", {}).get("splits") or {}).get("validation") or {}
    parts = {key: config.get(key) for key in ("seed", "data", "rendered", "sampling")}
    is_limited = validation.get("share") is not None  # else max_time, which is the training's, decides no image
    parts["validation"] = {name: value for name, value in validation.items() if is_limited or name != "max_time"}
    return lasting_settings(parts) | {"weights": {name: value for name, value in weights.items() if name != CODE}}


def named_weights(config: dict[str, Any]) -> dict[str, str]:
    """Hashes of the weights folders that a config names, by config key, and of the user's own code."""
    read = {"model": ("folder", "base", "tokenizer"), "task": ("start_from",)}
    found = local_hashes({part: {key: config.get(part, {}).get(key) for key in keys} for part, keys in read.items()})
    return found | ({CODE: code} if (code := user_code(config)) else {})


def check_captions(cfg: DictConfig, task: object, batches: pl.LightningDataModule) -> None:
    """Refuses captions of either split that the task's target does not read, of words that it lacks, or classes."""
    reader = reader_of(getattr(task, "target", task))
    if reader.reads_any_text:
        return
    images = _images(cfg, batches)
    captions = {caption for name in ("train", "validation") for caption in images.split(name).captions}
    reader.check(sorted(captions))


def data_hash(cfg: DictConfig, batches: pl.LightningDataModule) -> dict[str, str]:
    """{CAPTIONS: hash of the training captions in order}. A hash of the files would depend on their paths and dates,
    which differ if a run is resumed on a copy of the data."""
    return {CAPTIONS: digest(list(_images(cfg, batches).split("train").captions))}


def _images(cfg: DictConfig, batches: pl.LightningDataModule) -> Splits:
    """The captioned images that a task's tables are made of."""
    return instantiate(cfg.images) if "images" in cfg else getattr(batches.splits, "images", batches.splits)


def named_checkpoint(ckpt_path: str | None, folder: Path) -> Path | None:
    """The checkpoint that ckpt_path asks for: a path, or `last` or `best` of the run folder."""
    if ckpt_path is None:
        return None
    is_name = ckpt_path in NAMED
    path = folder / "checkpoints" / f"{NAMED[ckpt_path]}.ckpt" if is_name else Path(str(ckpt_path))
    if not is_file(path):
        place = f" ({path})" if is_name else ""
        remedy = "give hydra.run.dir=<run folder> with it, or" if is_name else "give"
        raise LanternError(f"ckpt_path={ckpt_path}{place} is no file; {remedy} a .ckpt from a run's checkpoints folder")
    return path


def checkpoint_to_resume(
    folder: Path, config: dict[str, Any], named: Path | None, weights: Mapping[str, str]
) -> str | None:
    """The checkpoint to start from, if any:

    - ckpt_path names one, first start: that one;
    - ckpt_path names one, and torchrun, Slurm or the same command restarts the run: its own latest, else that one;
    - ckpt_path is not given: the latest of an unfinished run in this folder.
    """
    was_restarted = any(int(os.environ.get(f"{by}_RESTART_COUNT", 0)) > 0 for by in ("TORCHELASTIC", "SLURM"))
    has_config = config["ckpt_path"] not in NAMED and (folder / CONFIG).is_file()
    began_from_file = has_config and not _changed_settings(folder, config)  # this run began from this ckpt_path
    if named is not None and not was_restarted and not began_from_file:
        return str(named)
    return unfinished_checkpoint(folder, config, weights) or (str(named) if named is not None else None)


def unfinished_checkpoint(folder: Path, config: dict[str, Any], weights: Mapping[str, str]) -> str | None:
    """The latest checkpoint of an unfinished run in this folder (a run without exported weights), or None. The
    number of processes may have changed since."""
    latest = latest_of(folder)
    is_finished = weights_file(folder / config["task_name"]).is_file()
    if not latest.is_file() or not (folder / CONFIG).is_file() or is_finished:
        return None
    what = f"hydra.run.dir={folder} holds an unfinished run"
    _check_same(folder, config, weights, what, f"ckpt_path={latest}")
    print(f"resumed from {latest.resolve()}")
    return str(latest)


def is_finished(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a run has ended in this folder, such as a point of a sweep that was killed."""
    if not weights_file(folder / config["task_name"]).is_file() or not (folder / CONFIG).is_file():
        return False  # the weights are written last
    _check_same(folder, config, named_weights(config), f"{folder} holds a run", "ckpt_path=last")
    print(f"{folder.resolve()} is finished; whether its data are the same was not looked at")
    return True


def _check_same(folder: Path, config: dict[str, Any], weights: Mapping[str, str], what: str, going_on: str) -> None:
    """Refuses settings, weights, code or captions that differ from those of the run in this folder. what: the beginning
    of the error; going_on: the setting that resumes that run nevertheless."""
    if changed := _changed_settings(folder, config):
        raise LanternError(
            f"{what} of other settings ({changed}); give another hydra.run.dir, of a sweep hydra.sweep.dir, or go on "
            f"from it by {going_on}"
        )
    recorded = read_provenance(folder).get("hashes", {})
    for name, found in weights.items():
        if (before := recorded.get(name, found)) != found:
            kind = {CAPTIONS: "data", CODE: "code"}.get(name, "weights")
            raise LanternError(
                f"{what} on other {kind}: {name} was {before}, is {found}; put them back, or give another folder"
            )


def _changed_settings(folder: Path, config: dict[str, Any]) -> str:
    """What differs between the config.yaml of a run folder and these settings; empty if nothing changes a weight."""
    configs = OmegaConf.load(folder / CONFIG), OmegaConf.create(OmegaConf.to_yaml(config))
    before, now = (lasting_settings(OmegaConf.to_container(each)) for each in configs)
    pairs = {name: [str(of.get(name, "not given")) for of in (before, now)] for name in {**before, **now}}
    others = [(name, old[:WIDTH], new[:WIDTH]) for name, (old, new) in pairs.items() if old != new]
    more = ["…"] if len(others) > MAX_SHOWN else []
    return "; ".join([f"{name} was {old}, is {new}" for name, old, new in others[:MAX_SHOWN]] + more)


def lasting_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration by their dotted names, without what MAY_DIFFER_ON_RESUME."""
    return {name: value for name, value in leaves(config).items() if not MAY_DIFFER_ON_RESUME & {*name.split(".")}}


@rank_zero_only
def keep_old_metrics(folder: Path) -> None:
    """Renames metrics.csv of an earlier run in this folder, which a new logger would delete, to metrics-1.csv, …"""
    if (path := folder / METRICS).is_file():
        rename_aside(path)


def latest_of(folder: Path) -> Path:
    """The checkpoint that a killed run in this folder resumes from."""
    return folder / "checkpoints" / f"{NAMED['last']}.ckpt"
