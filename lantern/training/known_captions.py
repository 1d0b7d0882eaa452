"""Captions that a target does not read, told before images are encoded and drafters are trained, which takes hours. For
targets of a closed vocabulary or of classes; text encoders read all."""

import shlex
from typing import Any

import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.data.splits import Splits
from lantern.errors import LanternError
from lantern.evaluation.fingerprint import digest
from lantern.models.conditioners import words_of
from lantern.runtime.overrides import override

CAPTIONS = "training captions"  # among the hashes of what a run has read


def check_words(cfg: DictConfig, task: pl.LightningModule, batches: pl.LightningDataModule) -> None:
    """Raises LanternError for captions that the task's target does not read."""
    conditioner = getattr(getattr(task, "target", task), "conditioner", None)
    check_captions(conditioner, _images(cfg, batches), cfg.task_name)


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
