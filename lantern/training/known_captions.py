"""Captions that a target does not read, told before images are encoded and drafters are trained, which takes hours. For
targets of a closed vocabulary or of classes; text encoders read all."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.data.prompts import load_prompts, split_prompts
from lantern.data.splits import Splits
from lantern.errors import LanternError
from lantern.identity import digest
from lantern.models.conditioners import words_of
from lantern.runtime.overrides import override

CAPTIONS = "training captions"  # among the hashes of what a run has read
PROMPTS = "scenes"  # which evaluate.py decodes with unless others are given


def check_words(cfg: DictConfig, task: pl.LightningModule, batches: pl.LightningDataModule) -> None:
    """Raises LanternError for captions, and for prompts of +sweep=recipe, that the task's target does not read."""
    conditioner = getattr(getattr(task, "target", task), "conditioner", None)
    check_captions(conditioner, _images(cfg, batches), cfg.task_name)
    if decoding := OmegaConf.select(cfg, "sweep.decoding"):
        check_decoding(conditioner, decoding, Path(cfg.paths.root) / "data" / "prompts")


def data_hash(cfg: DictConfig, batches: pl.LightningDataModule) -> dict[str, str]:
    """A hash of the training's captions in their order, under its name. That of files would depend on their place and
    dates, which differ where a run goes on with a copy."""
    return {CAPTIONS: digest(list(_images(cfg, batches).split("train").captions))}


def _images(cfg: DictConfig, batches: pl.LightningDataModule) -> Splits:
    """The captioned images that a task's tables are made of."""
    return instantiate(cfg.images) if "images" in cfg else getattr(batches.splits, "images", batches.splits)


def check_captions(conditioner: Any, images: Splits, task_name: str) -> None:
    """Raises LanternError for captions of either split that the conditioner does not read; where the target itself is
    trained, with the vocabulary that it needs."""
    if not hasattr(conditioner, "check"):
        return
    captions = {caption for name in ("train", "validation") for caption in images.split(name).captions}
    try:
        conditioner.check(sorted(captions))
    except LanternError as error:
        if task_name != "target":
            raise
        remedy = shlex.quote(override("task.vocabulary", sorted(words_of(captions))))
        raise LanternError(f"{str(error).split(';')[0]}; give {remedy}") from error


def check_decoding(conditioner: Any, decoding: Mapping[str, Any], folder: Path) -> None:
    """Raises LanternError for prompts with which +sweep=recipe would decode at its end and that the conditioner does
    not read. decoding: its settings of evaluate.py; folder: of lists of prompts."""
    given = decoding.get("prompts")
    if not hasattr(conditioner, "check") or (given is None and hasattr(conditioner, "evaluate_with")):
        return
    try:
        conditioner.check(split_prompts(load_prompts(given or PROMPTS, folder), decoding.get("split", "all")))
    except LanternError as error:
        raise LanternError(
            f"the drafters would be decoded with prompts={given or PROMPTS}, with {error}; give "
            "'+sweep.decoding.prompts=[\"…\"]', or a file with a prompt a line"
        ) from error
