"""Settings that no training works with, refused before anything is built; and a loss that is
not finite, which ends a training before its weights are exported."""

from collections.abc import Mapping
from math import isfinite

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from lantern.errors import LanternError, is_number, is_whole, no_value

EVERY = 10  # steps between two looks at the loss, each of which waits for the device
LEAST = {
    "batches.batch_size": 1, "batches.validation_batch_size": 1, "recipe.depth": 1, "distil.validation_depth": 1,
    "task.weight_decay": 0, "recipe.feature_weight": 0, "recipe.feature_noise": 0, "recipe.site_share": 0,
    "recipe.unroll_from": 0, "task.caption_dropout": 0, "trainer.val_check_interval": 1, "data.num_validation": 1,
    "trainer.log_every_n_steps": 1, "trainer.gradient_clip_val": 0, "data.num_train": 1,
    "callbacks.schedule.warmup_steps": 0, "trainer.strategy.timeout_s": 1, "callbacks.average.decay": 0, "seed": 0,
    "task.quantize_from": 1, "samples.num_images": 1, "batches.splits.validation.num_images": 1, "task.depth": 1,
    "task.validation_depth": 1, "samples.batch_size": 1, "batches.splits.validation.batch_size": 1,
    "recipe.loss.tau": 0.001,
}  # fmt: skip
MOST = {
    "seed": 2**32 - 1, "task.caption_dropout": 1, "recipe.site_share": 1, "recipe.unroll_from": 1,
    "callbacks.average.decay": 0.99999,
}  # fmt: skip
REMEDY = "nothing is exported, lower the learning rates (task.lr=…) and start in another folder"
RATES = ("task.lr", "task.muon_lr", "task.discriminator_lr")


def check_numbers(cfg: DictConfig) -> None:
    """Raises LanternError for a number out of its range; words are left to the constructors."""
    for name, least in LEAST.items():
        if is_number(value := OmegaConf.select(cfg, name)) and not least <= value <= MOST.get(name, float("inf")):
            most = f", {MOST[name]} at most" if name in MOST else ""
            raise LanternError(f"{name}={value} is out of range; give {least} at least{most}")
    if not is_whole(cfg.seed):
        raise LanternError(f"seed={cfg.seed} is no whole number; give one")
    for name in RATES:
        if is_number(rate := OmegaConf.select(cfg, name)) and not 0 <= rate < float("inf"):
            raise LanternError(f"{name}={rate} is no learning rate; give 0 (weights stay) or more")
    for name in ("trainer.max_steps", "trainer.max_epochs"):
        if is_number(limit := OmegaConf.select(cfg, name)) and limit != -1 and limit < 1:
            raise LanternError(f"{name}={limit} trains nothing; give 1 at least, or -1 for no limit")
    if is_number(count := OmegaConf.select(cfg, "trainer.accumulate_grad_batches")) and count != 1:
        raise LanternError(
            f"trainer.accumulate_grad_batches={count}: the batches of a step would have equal noise; leave it out, and "
            "give a larger batches.batch_size"
        )
    if isinstance(time := OmegaConf.select(cfg, "trainer.max_time"), str) and not time.strip("0:"):
        raise LanternError(f"trainer.max_time={time} trains nothing; give days:hours:minutes:seconds, or null")


def check_model(cfg: DictConfig) -> None:
    """Raises LanternError for a task on a model of the other kind of tokens: on one that stands on another target,
    task=target would train that one; and for one without what the task needs of it."""
    base = cfg.model.get("base")
    if cfg.task_name == "target" and base:
        raise LanternError(f"this model has latents and stands on {base}; to train it give task=target_continuous")
    if cfg.task_name.endswith("_continuous") and not base:
        raise LanternError(
            f"task={cfg.task_name} is for a model of latents, this one has codes; give model=scenes_continuous, or "
            f"task={cfg.task_name.removesuffix('_continuous')}"
        )
    asked = OmegaConf.to_container(cfg.task, resolve=False).values()
    if "${model.tokenizer}" in asked and not isinstance(cfg.model.get("tokenizer"), str):
        raise LanternError(
            "this task needs a tokenizer in this program's layout, and this model has none; leave model= out"
        )
    if "sharded_target" in cfg.callbacks and cfg.task_name != "drafter":
        raise LanternError(
            f"callbacks=sharded_target shards the frozen target of codes that a drafter is trained on, and "
            f"task={cfg.task_name} has none; leave it out"
        )


def check_tables(cfg: DictConfig) -> None:
    """Raises LanternError for tables that the task does not read, and for two of which it would read one."""
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


def check_data(cfg: DictConfig) -> None:
    """Raises LanternError for settings of the data that must be given and are not, by the names under which they are
    given: the data set, which is built as a part of others, does not know them."""
    if missing := sorted(OmegaConf.missing_keys(cfg.data)):
        raise LanternError(no_value(missing[0]))


def check_architecture(start_from: str, wanted: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Raises LanternError for weights of other layers, such as of another number of heads, which shapes do not tell."""
    if {**wanted, **found} != wanted:
        raise LanternError(f"task.start_from={start_from} has other layers than task.architecture; give one of those")


class FiniteLoss(pl.Callback):
    """Raises LanternError once the loss is NaN or infinite, or at the end a weight."""

    def __init__(self) -> None:
        self._last: Tensor | None = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx: int
    ) -> None:
        self._last = outputs["loss"]
        if trainer.global_step % EVERY == 1:
            self._check(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check(trainer)
        trained = (weight for weight in pl_module.parameters() if weight.requires_grad)
        if not all(weight.isfinite().all() for weight in trained):  # where a checkpoint left nothing to train
            raise LanternError(f"the weights are not finite at step {trainer.global_step}; {REMEDY}")

    def _check(self, trainer: pl.Trainer) -> None:
        if self._last is not None and not isfinite(loss := self._last.item()):
            raise LanternError(f"the training loss is {loss} at step {trainer.global_step}; {REMEDY}")
