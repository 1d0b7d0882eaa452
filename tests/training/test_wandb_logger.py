"""The W&B record of a training run, read back from its offline file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
from support.offline_runs import OfflineRun, read_runs
from support.paths import ROOT

from lantern.models.checkpoints import save_weights, weights_hash
from lantern.training.run.monitoring import TolerantWandbLogger, wandb_logger


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staged"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    yield
    wandb.finish()


def logger(folder: Path, checkpoint: str | None = None) -> TolerantWandbLogger:
    return wandb_logger("lantern", str(folder), "drafter", ["drafter"], checkpoint=checkpoint)


def test_a_drafter_is_an_artifact_of_the_run_that_trained_it(offline, tmp_path):
    weights = tmp_path / "drafter"
    save_weights(weights, {}, {"dim": 8})
    own = logger(tmp_path)
    own.log_metrics({"val/loss": 1.0}, 3)
    own.log_weights(weights, "drafter")
    wandb.finish()
    (run,) = read_runs(tmp_path)
    assert isinstance(run, OfflineRun)
    assert (run.run.job_type, list(run.run.tags), run.exit_code) == ("train", ["drafter"], 0)
    assert [(a.type, a.name) for a in run.artifacts] == [("drafter", f"drafter-{weights_hash(weights)}")]
    assert {entry.path for entry in run.artifacts[0].manifest.contents} == {"model.safetensors", "config.json"}
    assert run.summary["val/loss"] == 1.0


def test_each_point_of_a_sweep_is_a_run_of_its_own(offline, tmp_path):
    """Catches Lightning's logger, which logs to the run that an earlier point of the process left open."""
    for name in ("first", "second"):
        logger(tmp_path / name).log_metrics({"val/loss": 1.0}, 3)
    wandb.finish()
    assert [len(read_runs(tmp_path / name)) for name in ("first", "second")] == [1, 1]


def test_training_that_is_resumed_goes_on_in_its_own_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    first = logger(tmp_path / "first")._wandb_init
    checkpoint = str(tmp_path / "first" / "checkpoints" / "last.ckpt")
    assert logger(tmp_path / "second", checkpoint)._wandb_init["id"] == first["id"]
    assert first["resume"] == "allow"
    assert logger(tmp_path / "third")._wandb_init["id"] != first["id"]


TRAINED = """
import sys
from lantern.training.run.monitoring import wandb_logger
own = wandb_logger("lantern", sys.argv[1], "drafter", [])
own.log_metrics({"val/loss": 1.0}, 3)
own.finalize("success")
"""


def test_training_prints_nothing_of_wandb(tmp_path):
    """Catches the banner, the address and the summary of a run among the lines of training. In a process of its own:
    wandb reads its settings once a process."""
    settings = {key: value for key, value in os.environ.items() if key != "WANDB_SILENT"} | {"WANDB_MODE": "offline"}
    command = [sys.executable, "-c", TRAINED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=True)
    assert "wandb" not in done.stdout + done.stderr
    assert list(tmp_path.glob("wandb/offline-run-*"))
