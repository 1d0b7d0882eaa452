"""A miniature target task, drafter task and token data set, untrained, and a short training of any task."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from support.recipes import feature_lk

from lantern.sampling import Sampling
from lantern.training.data_module import TrainingData
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.recipe import Recipe
from lantern.training.run.budget import WarmupCosine
from lantern.training.run.fit import fit as fit_trainer
from lantern.training.run.run_state import LatestCheckpoint
from lantern.training.target_tasks import TargetTask

ARCHITECTURE = dict(dim=16, num_layers=2, num_heads=2, grid=[4, 4], caption_dim=8, prefix_len=6, multiple_of=8)
VOCABULARY = ["a", "red", "blue", "ring", "on", "wood"]
CODES = 32


class MemorySplit(list):
    """Items with what every split has."""

    fingerprint = "memory"

    @property
    def captions(self) -> list[str]:
        return [item["caption"] for item in self]


class MemorySplits:
    """The same random tokens in every split, with seeds as if the target had drawn them."""

    def __init__(self, count: int = 12) -> None:
        self.tokens = torch.randint(CODES, (count, 16), generator=torch.Generator().manual_seed(1))
        self.captions = ["a red ring on wood" if i % 2 else "wood" for i in range(count)]

    def split(self, name: str) -> MemorySplit:
        items = enumerate(zip(self.tokens, self.captions, strict=True))
        return MemorySplit({"tokens": t, "caption": c, "noise_seed": i} for i, (t, c) in items)


def target_task(weights: Path, seed: int = 0, **others: object) -> TargetTask:
    """others: TargetTask's vocabulary and start_from."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TargetTask(
            ARCHITECTURE, word_seed=0, tokenizer=str(weights / "tokenizer"), lr=1e-2, muon_lr=1e-2,
            weight_decay=0.01, caption_dropout=0.3, seed=seed, **({"vocabulary": VOCABULARY} | others),
        )  # fmt: skip


def drafter_task(
    target, sampling: Sampling | None = None, seed: int = 0, recipe: Recipe | None = None, **others: object
) -> DrafterTask:
    """others: DrafterTask's num_layers, start_from and validation_depth."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DrafterTask(
            target, sampling or Sampling(), recipe or feature_lk(), lr=1e-2, muon_lr=1e-2, weight_decay=0.0, seed=seed,
            **({"validation_depth": 3} | others),
        )  # fmt: skip


def fit(
    task, folder, max_steps: int, ckpt_path: str | None = None, save_every: int | None = None, precision="32-true",
    data=None, batch_size: int = 4,
) -> pl.Trainer:  # fmt: skip
    """Trains for max_steps without validation; data: MemorySplits by default. Returns the trainer."""
    callbacks = [WarmupCosine(warmup_steps=2)]
    if save_every:
        callbacks.append(ModelCheckpoint(folder, "step-{step}", every_n_train_steps=save_every, save_top_k=-1))
    trainer = pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_steps=max_steps, max_epochs=-1, callbacks=callbacks,
        precision=precision, logger=False, enable_checkpointing=bool(save_every), enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=1.0, num_sanity_val_steps=0, check_val_every_n_epoch=None,
        val_check_interval=1000,
    )  # fmt: skip
    fit_trainer(trainer, task, TrainingData(data or MemorySplits(), batch_size=batch_size, seed=3), ckpt_path)
    return trainer


def fit_saving(
    task, folder, *callbacks: pl.Callback, ckpt_path: str | None = None, steps: int = 8,
    interval: timedelta = timedelta(minutes=3), accumulate: int = 1,
) -> pl.Trainer:  # fmt: skip
    """Trains in epochs of three steps, every fourth step validated, the latest checkpoint saved at this interval."""
    latest = LatestCheckpoint(
        folder, "latest", train_time_interval=interval, save_on_train_epoch_end=False, enable_version_counter=False
    )
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=steps, max_epochs=-1, callbacks=[*callbacks, latest], logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, check_val_every_n_epoch=None,
        val_check_interval=4, default_root_dir=folder, accumulate_grad_batches=accumulate,
    )  # fmt: skip
    trainer.fit(task, TrainingData(MemorySplits(), batch_size=4, seed=3), ckpt_path=ckpt_path, weights_only=True)
    return trainer


class Pictures:
    """Random images that count their reads."""

    def __init__(self, count: int = 5) -> None:
        self.reads = 0
        images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
        outer = self

        class Split(MemorySplit):
            def __getitem__(self, index):
                outer.reads += 1
                return super().__getitem__(index)

        self.items = Split({"image": image, "caption": f"picture {i}"} for i, image in enumerate(images))

    def split(self, name: str) -> MemorySplit:
        return self.items
