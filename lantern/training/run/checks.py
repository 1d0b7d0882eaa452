"""Checks of a training before hours of image encoding: settings that nothing reads, and captions that the target cannot
read."""

from collections.abc import Mapping, Sequence

import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.data.splits import Splits
from lantern.errors import LanternError
from lantern.identity import digest
from lantern.types import reader_of

CAPTIONS = "training captions"  # key in the hashes of what a run has read


def check_settings(cfg: DictConfig, overrides: Sequence[str] = ()) -> None:
    """Refuses what nothing would read or would be read by another name. Each part's constructor checks its own
    settings. overrides: of the command."""
    if ignored := [given for given in overrides if given.startswith("drafter.")]:
        raise LanternError(
            f"{ignored[0]} says what evaluate.py drafts with; to train a drafter further give task.start_from=…, for "
            "its sizes distil.…"
        )
    asked = OmegaConf.to_container(cfg.task, resolve=False).values()
    if "${model.tokenizer}" in asked and not isinstance(cfg.model.get("tokenizer"), str):
        raise LanternError(
            "this task needs a tokenizer in this program's layout, and this model has none; leave model= out"
        )
    if "training_tokens" not in cfg and "${training_tokens}" in str(OmegaConf.to_container(cfg, resolve=False)):
        raise LanternError(
            f"features= and +captions= say how the tables of drafters of codes are made, task={cfg.task_name} reads "
            "none; leave them out"
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
