"""Training on several processes equals training on one, to rounding. As a program, torchrun <this file> <weights>
<results>, it trains miniatures; the weights of each training are <results>/<kind>-<processes>.pt."""

import support.as_a_command  # noqa: F401

# isort: split
import os
import sys
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from support.commands import python
from support.paths import ROOT, TESTS
from support.tiny_tasks import MemorySplits, drafter_task, target_task

from lantern.errors import LanternError
from lantern.models.llamagen.weights_folder import load_target
from lantern.training.data_module import SeededBatches, TrainingData
from lantern.training.run.budget import WarmupCosine
from lantern.training.run.processes import strategy

ROUNDING = 1e-6  # after five steps; dropout keyed by process changes weights by 2e-3 or more
STEPS, BATCH = 5, 6


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
    else:
        parts = weights / "target", weights / "tokenizer"
        task = drafter_task(load_target(*parts, dtype="float64", device="cpu"))
    fit(task, processes)
    return task


@pytest.fixture(scope="module")
def together(weights, tmp_path_factory) -> Path:
    """The folder of what two processes have trained."""
    folder = tmp_path_factory.mktemp("together")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    variables = {"PYTHONPATH": f"{ROOT}:{TESTS}", "OMP_NUM_THREADS": "1"}
    python(*launcher, __file__, str(weights), str(folder), timeout=300, **variables)
    return folder


@pytest.fixture(scope="module")
def alone(weights) -> dict[str, dict]:
    """State dicts after one process's training, by kind."""
    return {kind: trained(kind, weights, 1).state_dict() for kind in ("target", "drafter")}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["target", "drafter"])
def test_several_processes_train_the_weights_of_one(kind, together, alone):
    """Gloo, with the same images a step. Catches batches, noise or dropout that depend on the process, and an
    initialisation from one process's images."""
    found = torch.load(together / f"{kind}-2.pt", weights_only=True)
    torch.testing.assert_close(found, alone[kind], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_a_step_has_the_same_images_on_any_number_of_processes(processes):
    shares = [list(SeededBatches(14, 6, 5, rank, processes)) for rank in range(processes)]
    steps = [sorted(item for share in step for item in share) for step in zip(*shares, strict=True)]
    assert steps == [sorted(batch) for batch in SeededBatches(14, 6, 5)]


def test_a_batch_that_cannot_be_shared_equally_is_one_sentence():
    with pytest.raises(LanternError, match=r"batches\.batch_size=8 is no multiple of 3 processes"):
        SeededBatches(12, 8, 0, 0, 3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    weights, results = map(Path, sys.argv[1:])
    rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for kind in ("target", "drafter"):
        task = trained(kind, weights, processes)
        if rank == processes - 1:  # the last: the first one's weights are broadcast at the start
            torch.save(task.state_dict(), results / f"{kind}-{processes}.pt")
    torch.distributed.destroy_process_group()
