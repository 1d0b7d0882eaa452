"""Drafters that leave this machine or come from elsewhere: the model card, the upload, and W&B's artifacts."""

import json
from types import SimpleNamespace

import huggingface_hub
import pytest
import wandb
import yaml
from support.paths import ROOT

from lantern.drafters.export import model_card, push
from lantern.drafters.loading import drafter_folder
from lantern.errors import CheckpointError, LanternError
from lantern.models import hub
from lantern.runtime.provenance import git_state


@pytest.fixture
def run(tmp_path):
    """A run's folder as train.py leaves it, and its drafter."""
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter" / "config.json").write_text(json.dumps({"dim": 8, "target_hash": "abc123"}))
    (tmp_path / "provenance.json").write_text(json.dumps({"git": {"revision": "f00"}, "config": {}}))
    exported = {"weights": "drafter", "step": 2, "figures": {"val/alpha_1": 0.5, "val/length": 3.25}}
    (tmp_path / "exported.json").write_text(json.dumps(exported))
    return tmp_path


def test_a_card_says_whose_drafter_it_is_how_good_and_how_to_use_it(run, monkeypatch):
    told = ["model.checkpoint=user/model@main", "model.image_size=384"]
    monkeypatch.setitem(hub._commits, "user/model@main", "ab" * 20)
    card = model_card("me/drafter", str(run / "drafter"), "llamagen_c2i_b", told, "abc123", "user/model@main")
    head, text = card.removeprefix("---\n").split("---\n", 1)
    assert yaml.safe_load(head)["base_model"] == "user/model"
    for part in (
        "`abc123`",
        "| alpha_1 | 0.5 |",
        "| length | 3.25 |",
        "revision f00",
        "drafter.checkpoint=me/drafter",
        "ab" * 20,
    ):
        assert part in text


def test_a_card_says_of_every_source_where_its_weights_come_from(run, monkeypatch):
    """Catches shipped weights of an unknown revision, and a Hub id without the commit that was read."""
    monkeypatch.setitem(hub._commits, "user/drafter", "cd" * 20)
    for name in ("provenance.json", "exported.json"):
        (run / name).unlink()
    of_shipped, of_hub, of_folder = (
        model_card("me/drafter", source, "llamagen", [], "abc123")
        for source in (str(ROOT / "data" / "weights" / "drafter"), "user/drafter", str(run / "drafter"))
    )
    assert str(git_state()["revision"]) in of_shipped
    assert f"user/drafter at commit {'cd' * 20}" in of_hub
    assert "not on record" in of_folder
    assert "base_model" not in of_folder
    assert "| figure" not in of_folder
    assert not any("unknown" in card for card in (of_shipped, of_hub, of_folder))


def test_a_folder_is_uploaded_with_its_card_and_a_refusal_is_one_sentence(run, monkeypatch):
    asked = []

    class Api:
        def create_repo(self, name, exist_ok):
            asked.append((name, exist_ok))

        def upload_folder(self, repo_id, folder_path, allow_patterns):
            asked.append(sorted(path.name for path in folder_path.iterdir() if path.name in allow_patterns))
            return f"https://huggingface.co/{repo_id}"

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    (run / "drafter" / ".env").write_text("a secret")  # what lies beside the drafter stays here
    assert push(run / "drafter", "me/drafter", "written by Lantern") == "https://huggingface.co/me/drafter"
    assert asked == [("me/drafter", True), ["README.md", "config.json"]]
    monkeypatch.setattr(Api, "create_repo", lambda *_, **__: (_ for _ in ()).throw(OSError("401: log in first")))
    with pytest.raises(LanternError, match=r"push=me/drafter failed .401: log in first.; what was to be uploaded"):
        push(run / "drafter", "me/drafter", "written by Lantern")
    (run / "README.md").write_text("of a project")
    with pytest.raises(LanternError, match="not a card that was written here"):
        push(run, "me/drafter", "written by Lantern")


def test_an_artifact_of_weights_and_biases_is_a_drafters_folder(run, monkeypatch):
    def artifact(name):
        if name != "team/lantern/drafter-llamagen:best":
            raise ValueError("no such artifact")
        return SimpleNamespace(download=lambda: str(run / "drafter"))

    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(artifact=artifact))
    assert drafter_folder("wandb:team/lantern/drafter-llamagen:best") == run / "drafter"
    with pytest.raises(CheckpointError, match=r"cannot be fetched .no such artifact\)"):
        drafter_folder("wandb:team/lantern/other:v0")
