"""Checks of a training before hours of image encoding: settings that exclude each other (before anything is built), and
captions that the target cannot read."""

from collections.abc import Mapping, Sequence

import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.data.splits import Splits
from lantern.errors import LanternError, is_number, is_whole, no_value
from lantern.identity import digest
from lantern.types import reader_of

CAPTIONS = "training captions"  # key in the hashes of what a run has read


def check_settings(cfg: DictConfig, overrides: Sequence[str] = ()) -> None:
    """Refuses settings with which no training works. Each part's constructor checks its own settings.
    overrides: of the command."""
    if ignored := [given for given in overrides if given.startswith("drafter.")]:
        raise LanternError(
            f"{ignored[0]} says what evaluate.py drafts with; to train a drafter further give task.start_from=…, for "
            "its sizes distil.…"
        )
    _check_trainer(cfg)
    _check_model(cfg)
    _check_tables(cfg)
    if missing := sorted(OmegaConf.missing_keys(cfg.data)):  # by the name under which the user gives it
        raise LanternError(no_value(missing[0]))


def _check_trainer(cfg: DictConfig) -> None:
    trainer = cfg.trainer
    if not is_whole(cfg.seed) or not 0 <= cfg.seed < 2**32:
        raise LanternError(f"seed={cfg.seed} is out of range; give a whole number from 0 to {2**32 - 1}")
    for name, unlimited in (("max_steps", -1), ("max_epochs", -1), ("val_check_interval", None)):
        if is_number(value := trainer[name]) and value != unlimited and value < 1:
            remedy = "give 1 at least" + (", or -1 for no limit" if unlimited else "")
            raise LanternError(f"trainer.{name}={value} is out of range; {remedy}")
    if isinstance(trainer.max_time, str) and not trainer.max_time.strip("0:"):
        raise LanternError(
            f"trainer.max_time={trainer.max_time} trains nothing; give days:hours:minutes:seconds, or null"
        )
    if (count := trainer.get("accumulate_grad_batches", 1)) != 1:
        raise LanternError(
            f"trainer.accumulate_grad_batches={count}: the batches of a step would have equal noise; leave it out, and "
            "give a larger batches.batch_size"
        )


def _check_model(cfg: DictConfig) -> None:
    """Refuses a task if the model has the other kind of tokens (codes or latents) or lacks what the task needs."""
    base, task = cfg.model.get("base"), cfg.task_name
    if task == "target" and base:
        raise LanternError(f"this model has latents and stands on {base}; to train it give task=target_continuous")
    if task == "target_continuous" and not base:
        raise LanternError(
            "task=target_continuous is for a model of latents, this one has codes; give model=scenes_continuous, or "
            "task=target"
        )
    asked = OmegaConf.to_container(cfg.task, resolve=False).values()
    if "${model.tokenizer}" in asked and not isinstance(cfg.model.get("tokenizer"), str):
        raise LanternError(
            "this task needs a tokenizer in this program's layout, and this model has none; leave model= out"
        )
    if "sharded_target" in cfg.callbacks and task != "drafter":
        raise LanternError(
            f"callbacks=sharded_target shards the frozen target of codes that a drafter is trained on, and "
            f"task={task} has none; leave it out"
        )


def _check_tables(cfg: DictConfig) -> None:
    """Refuses tables that the task does not read, and two tables if it would read only one of them."""
    if "training_tokens" not in cfg and "${training_tokens}" in str(OmegaConf.to_container(cfg, resolve=False)):
        raise LanternError(
            f"features= and +captions= say how the tables of drafters of codes are made, task={cfg.task_name} reads "
            "none; leave them out"
        )
    if "caption_table" in cfg and "feature_table" in cfg:
        raise LanternError(
            "+captions=disk stores captions for features that are computed at each step, features=disk the features "
            "themselves; give features=on_the_fly with it, or leave +captions=disk out"
        )


def check_architecture(start_from: str, wanted: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Refuses weights of another architecture that has the same shapes, such as another number of heads."""
    if {**wanted, **found} != wanted:
        raise LanternError(f"task.start_from={start_from} has other layers than task.architecture; give one of those")


def check_captions(cfg: DictConfig, task: object, batches: pl.LightningDataModule) -> None:
    """Refuses captions of either split that the task's target does not read: words outside a closed vocabulary, or
    classes."""
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
