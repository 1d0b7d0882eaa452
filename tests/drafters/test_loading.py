"""Drafters that come from elsewhere: W&B's artifacts."""

from types import SimpleNamespace

import pytest
import wandb

from lantern.drafters.loading import drafter_folder
from lantern.errors import CheckpointError


def test_an_artifact_of_weights_and_biases_is_a_drafters_folder(tmp_path, monkeypatch):
    def artifact(name):
        if name != "team/lantern/drafter-llamagen:best":
            raise ValueError("no such artifact")
        return SimpleNamespace(download=lambda: str(tmp_path))

    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(artifact=artifact))
    assert drafter_folder("wandb:team/lantern/drafter-llamagen:best") == tmp_path
    with pytest.raises(CheckpointError, match=r"cannot be fetched .no such artifact\)"):
        drafter_folder("wandb:team/lantern/other:v0")
