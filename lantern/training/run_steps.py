"""The steps of train.py around Trainer.fit: checks, resuming and records before it, the export of weights after it."""

import json
import logging
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_only
from torch.distributed import DistError

from lantern.errors import LanternError
from lantern.identity import PROVENANCE
from lantern.models.checkpoints import local_hashes, weights_file
from lantern.reporting.recipe_runs import EVALUATE_WITH
from lantern.runtime.files import alone_in, is_file, read_object, replace_text
from lantern.runtime.freed_memory import keep_freed_memory
from lantern.runtime.overrides import override
from lantern.runtime.programs import program_of
from lantern.training.beginning import CONFIG, NAMED, latest_of
from lantern.training.known_captions import CAPTIONS
from lantern.training.processes import differences, lasting_settings, was_restarted
from lantern.training.requeue import remove_surplus
from lantern.training.saved_state import whole_checkpoint
from lantern.training.wandb_logger import TolerantWandbLogger

# overrides that evaluate.py needs again: target, sampling law, kind of drafter, paths
REPEATED = re.compile(r"[+~]*((model|sampling|paths|prompts|quality)[.@=]|drafter=)")
OF_CODES = re.compile(r"[+~]*(distil[.@=]|drafter/training|drafter=(?!eagle$))")  # overrides of task=drafter alone
TOLD = 3  # settings in which a run differs from an earlier one in its folder
# warnings of every run that a user cannot act on
WARNINGS = (
    "`isinstance.treespec", "The '.*' does not have many", "The number of training", "Experiment logs directory",
    "Mismatch dtype between input and weight", "The `srun` command is available",  # one process needs no srun
)  # fmt: skip


def silence_warnings() -> None:
    """Hides WARNINGS and Lightning's information messages."""
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def whole_config(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain resolved values, for checkpoints, loggers and files."""
    return OmegaConf.to_container(cfg, resolve=True)


def named_weights(config: dict[str, Any]) -> dict[str, str]:
    """Hashes of the weights folders that a config names, by config key."""
    read = {"model": ("folder", "base", "tokenizer"), "task": ("start_from",)}
    return local_hashes({part: {key: config.get(part, {}).get(key) for key in keys} for part, keys in read.items()})


def weights_of(config: dict[str, Any], task: pl.LightningModule) -> dict[str, str]:
    """named_weights and the hash of the task's frozen target."""
    target = getattr(task, "target", None)
    return named_weights(config) | ({"target": target.weights_hash} if target is not None else {})


def alone(folder: Path) -> AbstractContextManager[None]:
    """LanternError while another training writes to this folder; the processes of one training share it."""
    return nullcontext() if rank_zero_only.rank else alone_in(folder)


def named_checkpoint(asked: str | None, folder: Path) -> Path | None:
    """The whole checkpoint that ckpt_path asks for, by its path, or as `last` or `best` of the run folder; None if it
    asks for none. LanternError if there is none."""
    if asked is None:
        return None
    path = folder / "checkpoints" / f"{NAMED[asked]}.ckpt" if asked in NAMED else Path(asked)
    found = whole_checkpoint(path)
    if found is None:
        wrong = "no checkpoint, or not all of one" if is_file(path) else "no file"
        named = f" ({path})" if asked in NAMED else ""
        remedy = "give hydra.run.dir=<run folder> with it, or" if asked in NAMED else "give"
        raise LanternError(f"ckpt_path={asked}{named} is {wrong}; {remedy} a .ckpt from a run's checkpoints folder")
    if found != path:
        print(f"{path} is torn or missing; the one before it, {found}, is used")
    return found


def checkpoint_to_resume(
    folder: Path, config: dict[str, Any], asked: Path | None, weights: Mapping[str, str]
) -> str | None:
    """The checkpoint that is asked for, else that of an unfinished run in this folder; the other way round where this
    run has gone on since: restarted by torchrun or Slurm, or killed and started by the same command, with the same
    file. None without either."""
    if asked is not None and not was_restarted() and not _began_from_file(folder, config):
        return str(asked)
    found = unfinished_checkpoint(folder, config, weights)
    return found or (str(asked) if asked is not None else None)


def _began_from_file(folder: Path, config: dict[str, Any]) -> bool:
    """Whether the run in this folder has these settings, among them a ckpt_path that is no name of its own files."""
    recorded = folder / CONFIG
    return config["ckpt_path"] not in NAMED and recorded.is_file() and not _differences(recorded, config)


def unfinished_checkpoint(folder: Path, config: dict[str, Any], weights: Mapping[str, str]) -> str | None:
    """The latest whole checkpoint of an unfinished run in this folder, one without exported weights; None without one.
    LanternError if that run had other settings or read other weights; another number of processes is none."""
    path, recorded = latest_of(folder), folder / CONFIG
    latest = whole_checkpoint(path)
    if latest is None or not recorded.is_file() or weights_file(folder / config["task_name"]).is_file():
        return None
    if others := _differences(recorded, config):
        raise LanternError(
            f"hydra.run.dir={folder} holds an unfinished run of other settings ({_first(others)}); give another "
            f"folder, or go on from it by ckpt_path={latest}"
        )
    _check_weights(folder, weights, f"hydra.run.dir={folder} holds an unfinished run")
    print(f"resumed from {latest}" + ("" if latest == path else f", because {path.name} is torn"))
    return str(latest)


def is_finished(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a run has ended in this folder, such as a point of a sweep that was killed. LanternError if it was one of
    other settings, or on other weights."""
    recorded, weights = folder / CONFIG, weights_file(folder / config["task_name"])  # the file that is written last
    if not weights.is_file() or not recorded.is_file():
        return False
    if others := _differences(recorded, config):
        raise LanternError(
            f"{folder} holds a run of other settings ({_first(others)}); give another hydra.run.dir, of a sweep "
            "hydra.sweep.dir, or go on from it by ckpt_path=last"
        )
    _check_weights(folder, named_weights(config), f"{folder} holds a run")
    print(f"{folder} is finished")
    return True


def _check_weights(folder: Path, weights: Mapping[str, str], what: str) -> None:
    """Raises LanternError, which begins with `what`, if the run in this folder has read other weights or captions."""
    recorded = read_object(folder / PROVENANCE).get("hashes", {})
    for name, found in weights.items():
        if (before := recorded.get(name, found)) != found:
            kind = "data" if name == CAPTIONS else "weights"
            raise LanternError(
                f"{what} on other {kind}: {name} was {before}, is {found}; put them back, or give another folder"
            )


def _differences(recorded: Path, config: dict[str, Any]) -> list[str]:
    """What differs between a run's config.yaml and these settings, those that change no weight aside."""
    configs = (OmegaConf.load(recorded), OmegaConf.create(OmegaConf.to_yaml(config)))
    return differences(*(lasting_settings(OmegaConf.to_container(each)) for each in configs))


def _first(others: list[str]) -> str:
    more = f"; {len(others) - TOLD} more in its {CONFIG}" if len(others) > TOLD else ""
    return "; ".join(others[:TOLD]) + more


def check_overrides(overrides: Sequence[str], task_name: str) -> None:
    """Raises LanternError for settings that only evaluation reads, or another task."""
    if ignored := [override for override in overrides if override.startswith("drafter.")]:
        raise LanternError(
            f"{ignored[0]} says what evaluate.py drafts with; to train a drafter further give task.start_from=…, for "
            "its sizes distil.…"
        )
    if task_name == "drafter_continuous" and (ignored := list(filter(OF_CODES.match, overrides))):
        raise LanternError(
            f"{ignored[0]} is for drafters of codes, task=drafter_continuous trains EAGLE's layer on latents; leave it "
            "out, and give its passes as task.depth=… and task.validation_depth=…"
        )


def fit(trainer: pl.Trainer, task: pl.LightningModule, batches: object, checkpoint: str | None) -> None:
    """Trainer.fit from a checkpoint or from the start. LanternError for a checkpoint of another task or size, and for
    processes that do not find each other."""
    keep_freed_memory()
    if checkpoint is not None:
        remove_surplus(Path(trainer.default_root_dir))
    trainer.precision_plugin.convert_module(task)  # Lightning restores weights before it does: float64 would be rounded
    try:
        trainer.fit(task, batches, ckpt_path=checkpoint, weights_only=True)
    except DistError as error:
        reason = str(error).splitlines()[0]
        raise LanternError(
            f"the {trainer.world_size} processes did not find each other ({reason}); start all of them with the "
            "address of the first as MASTER_ADDR and a port that is free there as MASTER_PORT"
        ) from error
    except (RuntimeError, KeyError, ValueError, UnpicklingError) as error:
        if isinstance(error, LanternError) or checkpoint is None or trainer.global_step > 0:
            raise
        reason = str(error).splitlines()[0]
        raise LanternError(
            f"ckpt_path={checkpoint} is of another task or size ({reason}); give one of this task"
        ) from error


@rank_zero_only
def export(
    task: pl.LightningModule, trainer: pl.Trainer, folder: Path, overrides: Sequence[str],
    config_dir: Sequence[str] = (),
) -> None:  # fmt: skip
    """Writes the weights of the best validated step, or without validation the last ones, and prints the next command.
    overrides and config_dir: those of the training command."""
    best = [c.best_model_path for c in trainer.callbacks if isinstance(c, ModelCheckpoint) and c.monitor]
    path = whole_checkpoint(Path(best[0])) if best and best[0] else None
    if best and best[0] and path is None:
        print(f"{best[0]}, the best weights, is torn or gone; the last ones are exported")
    if path:
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        task.load_state_dict(state, strict=task.strict_loading)
    conditioner = getattr(getattr(task, "target", None), "conditioner", None)
    needed = list(getattr(conditioner, "evaluate_with", ()))
    if needed:  # before the weights, with which a run counts as finished
        replace_text(folder.parent / EVALUATE_WITH, json.dumps(needed))
    task.export(folder)
    for logger in trainer.loggers:
        if isinstance(logger, TolerantWandbLogger):
            logger.log_weights(folder, folder.name)
    print(what_next(folder, [*overrides, *needed], config_dir))


def what_next(weights: Path, overrides: Sequence[str], config_dir: Sequence[str] = ()) -> str:
    """For a drafter the command that evaluates it, an EAGLE drafter losslessly, with the training's overrides that
    describe the same target; else where the weights are."""
    if weights.name == "drafter":
        kept = [given for given in overrides if REPEATED.match(given) and given != "drafter=eagle"]
        method = [] if any(given.startswith("drafter=") for given in kept) else ["+method=refined_jacobi"]
        program = program_of("evaluate.py")[1]
        command = shlex.join([*program, *config_dir, *method, *kept, override("drafter.checkpoint", weights)])
        return f"drafter written; measure it with: {command}"
    return f"{weights.name} written to {weights}; to ship it, copy that folder to data/weights/{weights.name}"
