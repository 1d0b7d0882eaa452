"""A training takes its folder over at its first step, and keeps beside what a restart would mistake for its own."""

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from support.tiny_tasks import MemorySplits, target_task

from lantern.errors import LanternError
from lantern.training.data_module import TrainingData
from lantern.training.run.run_folder import ClaimRunFolder, checkpoint_to_resume, fit, is_fresh_start

CONFIG = {"task_name": "target", "ckpt_path": "best.ckpt"}


def left_behind(folder: Path) -> dict[str, str]:
    """An earlier run's folder, and what is in it by name."""
    (folder / "target").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    for name in ("target/model.safetensors", "config.yaml"):
        (folder / name).write_text("task_name: target")
    for name in ("latest", "best"):
        torch.save({"of": name}, folder / "checkpoints" / f"{name}.ckpt")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def trained(folder: Path, weights: Path, batch_size: int) -> None:
    beginning = ClaimRunFolder(folder, CONFIG, "cpu", {}, None)
    trainer = pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_steps=2, callbacks=[beginning], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    fit(trainer, target_task(weights), TrainingData(MemorySplits(), batch_size, seed=3), None)


def test_a_start_that_is_refused_changes_nothing_in_its_folder(weights, tmp_path):
    """Catches a finished run that is trained anew, and an unfinished one that no command goes on with any more."""
    before = left_behind(tmp_path)
    with pytest.raises(LanternError, match="do not fill a batch"):
        trained(tmp_path, weights, batch_size=400)
    assert contents(tmp_path) == before


def test_a_start_keeps_beside_what_a_restart_would_take_for_its_own(weights, tmp_path):
    """Catches a restart, before the first checkpoint of this run, that goes on from the earlier one's."""
    left_behind(tmp_path)
    best = tmp_path / "checkpoints" / "best.ckpt"
    trained(tmp_path, weights, batch_size=4)
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()} | {path.name for path in tmp_path.iterdir()}
    assert {"target-1", "latest-1.ckpt", "best.ckpt", "config.yaml", "provenance.json"} <= kept
    assert not {"target", "latest.ckpt"} & kept
    assert checkpoint_to_resume(tmp_path, CONFIG, best, {}) == str(best)


def test_a_run_that_goes_on_from_its_latest_checkpoint_keeps_it(tmp_path):
    latest, previous = (tmp_path / "checkpoints" / name for name in ("latest.ckpt", "latest.previous.ckpt"))
    assert not any(is_fresh_start(tmp_path, str(path)) for path in (latest, previous))
    assert not is_fresh_start(tmp_path / "x" / "..", str(latest))
    assert is_fresh_start(tmp_path, None)
    assert is_fresh_start(tmp_path, str(latest.with_name("best.ckpt")))
