"""Trainer.fit with errors in one sentence, the export of the weights after it, and the command that comes next."""

import ctypes
import json
import logging
import re
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_only

from lantern.drafters.export import VALIDATED, exported_step
from lantern.errors import LanternError, first_line
from lantern.runtime.files import EXPORTED, replace_text
from lantern.runtime.home import program_of
from lantern.runtime.overrides import override
from lantern.runtime.progress_line import ProgressLine
from lantern.training.run.budget import compares_origins
from lantern.training.run.monitoring import TolerantWandbLogger, TrainingBar
from lantern.training.run.run_state import RunFolder
from lantern.types import reader_of

# overrides that evaluate.py needs again: target, sampling law, kind of drafter, paths
FOR_EVALUATION = re.compile(r"[+~]*((model|sampling|paths|prompts|quality)[.@=]|drafter=|method=)")
# warnings of every run that a user cannot act on
WARNINGS = (
    "`isinstance.treespec", "The '.*' does not have many", "The number of training", "Experiment logs directory",
    "Mismatch dtype between input and weight", "The `srun` command is available",  # one process needs no srun
    "Checkpoint directory .* exists", "Be aware that when using `ckpt_path`", "You're resuming from a checkpoint",
    "The dirpath has changed",
)  # fmt: skip
KEPT_BYTES = 2**30  # bytes: largest tensor that reuses freed memory, and the most freed memory that is kept
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def silence_warnings() -> None:
    """Hides WARNINGS and Lightning's information messages."""
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def fit(trainer: pl.Trainer, task: pl.LightningModule, batches: object, checkpoint: str | None) -> None:
    """Trainer.fit from a checkpoint or from the start."""
    keep_freed_memory()
    trainer.precision_plugin.convert_module(task)  # Lightning converts only after loading weights, which rounds float64
    try:
        trainer.fit(task, batches, ckpt_path=checkpoint, weights_only=True)
    except (RuntimeError, LookupError, ValueError, EOFError, UnpicklingError) as error:
        if isinstance(error, LanternError) or checkpoint is None or trainer.global_step > 0:
            raise
        reason = f"ckpt_path={checkpoint} is of another task or size ({first_line(error)})"
        raise LanternError(f"{reason}; give one of this task") from error


@rank_zero_only
def export(task: pl.LightningModule, trainer: pl.Trainer, folder: Path) -> None:
    """Writes the weights of the best validated step, or without validation the last ones, notes which step that is, and
    prints it."""
    chooser = next((c for c in trainer.callbacks if isinstance(c, ModelCheckpoint) and c.monitor), None)
    if chooser and (best := chooser.best_model_path):
        content = torch.load(best, map_location="cpu", weights_only=True)
        task.load_state_dict(content["state_dict"], strict=task.strict_loading)
    else:
        validated = next((c.validated for c in trainer.callbacks if isinstance(c, RunFolder)), {})
        content = {"global_step": trainer.global_step, VALIDATED: validated}
    needed = [*reader_of(getattr(task, "target", None)).evaluate_with, *getattr(task, "evaluate_with", [])]
    exported = write_exported(folder, content, needed)
    task.export(folder)
    for logger in trainer.loggers:
        if isinstance(logger, TolerantWandbLogger):
            logger.log_weights(folder, folder.name.partition("_")[0], exported)
    best_step = "" if exported["step"] == trainer.global_step else f"; the best weights are of step {exported['step']}"
    of_images, found = getattr(trainer.datamodule, "told_of_part", ""), exported["figures"]
    chosen_by = f", {chooser.monitor}={found[chooser.monitor]:.4g}" if chooser and chooser.monitor in found else ""
    steps = "step" if trainer.global_step == 1 else "steps"
    print(f"trained {trainer.global_step} {steps}{of_images}{best_step}{chosen_by}")
    if compares_origins(trainer):
        left_s = next((c.comparison_s for c in trainer.callbacks if isinstance(c, TrainingBar)), 0.0)
        with closing(ProgressLine("training")) as line:
            line.show(0.99, "comparing training with held-out images", left_s or None)
            said = task.compare_origins(trainer.datamodule, exported["figures"].get("val/alpha_1"))
        print(said)


@rank_zero_only
def print_next(weights: Path, overrides: Sequence[str] | None, config_dir: Sequence[str]) -> None:
    """Prints the command that comes next, if there are `overrides` of a command; config_dir: of it."""
    if overrides is not None:
        needed = exported_step(weights).get("evaluate_with", [])
        print(next_command(weights, [*overrides, *needed], config_dir))


def write_exported(weights: Path, checkpoint: Mapping[str, Any], needed: Sequence[str] = ()) -> dict[str, Any]:
    """Notes in a run's folder which step is exported as `weights`, with its figures -> what is noted. needed: settings
    of evaluate.py."""
    validated, step = checkpoint.get(VALIDATED) or {}, checkpoint["global_step"]
    figures = validated["figures"] if validated.get("step") == step else {}
    found = {"weights": weights.name, "step": step, "figures": figures, "evaluate_with": [*needed]}
    replace_text(weights.parent / EXPORTED, json.dumps(found, indent=2) + "\n")
    return found


def next_command(weights: Path, overrides: Sequence[str], config_dir: Sequence[str] = ()) -> str:
    """For a drafter, the command that evaluates it (an EAGLE drafter losslessly) on the same target, with the
    training's overrides that describe it. For other weights, where they are."""
    if weights.name != "drafter":
        setting = {"target": "model.folder", "tokenizer": "model.tokenizer"}.get(weights.name)
        return f"{weights.name} written to {weights}" + (f"; use it by {override(setting, weights)}" if setting else "")
    kept = [given for given in overrides if FOR_EVALUATION.match(given) and given != "drafter=eagle"]
    method = [] if any(given.startswith(("drafter=", "+method=")) for given in kept) else ["+method=refined_jacobi"]
    program = program_of("evaluate.py")[1]
    command = shlex.join([*program, *config_dir, *method, *kept, override("drafter.checkpoint", weights)])
    return f"drafter written; measure it with: {command}"


def keep_freed_memory() -> None:
    """Keeps the memory of freed tensors for the next ones. Otherwise the system would clear the pages of every large
    tensor again at each step. Has no effect without glibc."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if tune is not None:
        tune(M_TRIM_THRESHOLD, KEPT_BYTES)
        tune(M_MMAP_THRESHOLD, KEPT_BYTES)
