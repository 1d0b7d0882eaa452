"""Drafters that come from elsewhere: W&B's artifacts, and the run folders of trainings."""

from types import SimpleNamespace

import pytest
import wandb

from lantern.drafters.loading import drafter_folder
from lantern.errors import CheckpointError
from lantern.models.checkpoints import save_weights


def test_an_artifact_of_weights_and_biases_is_a_drafters_folder(tmp_path, monkeypatch):
    def artifact(name):
        if name != "team/lantern/drafter-llamagen:best":
            raise ValueError("no such artifact")
        return SimpleNamespace(download=lambda: str(tmp_path))

    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(artifact=artifact))
    assert drafter_folder("wandb:team/lantern/drafter-llamagen:best") == tmp_path
    with pytest.raises(CheckpointError, match=r"cannot be fetched .no such artifact\)"):
        drafter_folder("wandb:team/lantern/other:v0")


def test_the_folder_of_a_training_is_answered_by_that_of_its_drafter(tmp_path):
    """Catches a sentence on a config.json that no training writes there."""
    save_weights(drafter := tmp_path / "drafter", {}, {"dim": 8})
    with pytest.raises(CheckpointError, match=rf"is the run folder of a training; give .*={drafter}$"):
        drafter_folder(tmp_path)
