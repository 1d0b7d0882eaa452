"""Trains miniatures: torchrun several_processes.py <weights> <results>. The weights of each training are
<results>/<kind>-<processes>.pt."""

import os
import sys
from pathlib import Path

import support.as_a_command  # noqa: F401

# isort: split
import pytorch_lightning as pl
import torch
from support.tiny_tasks import MemorySplits, drafter_task, target_task

from lantern.models.llamagen.weights_folder import load_target
from lantern.training.data_module import TrainingData
from lantern.training.run.budget import WarmupCosine
from lantern.training.run.processes import strategy

STEPS, BATCH = 5, 6


def tiny_target(weights: Path):
    return load_target(weights / "target", weights / "tokenizer", dtype="float64", device="cpu")


def fit(task: pl.LightningModule, processes: int) -> None:
    trainer = pl.Trainer(
        accelerator="cpu", devices=processes, strategy=strategy(processes, 1), precision="64-true",
        max_steps=STEPS, max_epochs=-1, callbacks=[WarmupCosine(warmup_steps=2)], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
        num_sanity_val_steps=0, check_val_every_n_epoch=None, val_check_interval=1000, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(task, TrainingData(MemorySplits(), batch_size=BATCH, seed=3))


def trained(kind: str, weights: Path, processes: int) -> pl.LightningModule:
    """A task of this kind after its training on so many processes, in one of them."""
    if kind == "target":
        task = target_task(weights)
        fit(task, processes)
        return task
    task = drafter_task(tiny_target(weights))
    fit(task, processes)
    return task


if __name__ == "__main__":
    torch.set_num_threads(1)
    weights, results = map(Path, sys.argv[1:])
    rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for kind in ("target", "drafter"):
        task = trained(kind, weights, processes)
        if rank == processes - 1:  # the last: the first one's weights are broadcast at the start
            torch.save(task.state_dict(), results / f"{kind}-{processes}.pt")
    torch.distributed.destroy_process_group()
