"""Finding model files: paths, folders, the Hub, and the error messages. Uses no network."""

import json
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.utils import httpx

from lantern.errors import CheckpointError
from lantern.models import hub
from lantern.models.hub import commit_of, find_file, find_folder, is_complete


class Hub:
    """A Hub that serves `folder` and records each request and whether it used the network."""

    def __init__(self, folder: Path, is_kept: bool) -> None:
        self.folder, self.is_kept, self.asked = folder, is_kept, []

    def file(self, repository: str, name: str, local_files_only: bool = False, **_: object) -> str:
        self.asked.append((repository, name, local_files_only))
        if local_files_only and not self.is_kept:
            raise LocalEntryNotFoundError("not kept")
        return str(self.folder / name)

    def snapshot(self, repository: str, allow_patterns: list[str], local_files_only: bool = False, **_: object) -> str:
        return str(Path(self.file(repository, "w.safetensors", local_files_only)).parent)


def test_a_hub_id_is_asked_for_that_file_and_the_network_only_once(tmp_path, monkeypatch):
    """Catches swapped repository and file names, and network access although all files are cached."""
    (tmp_path / "w.safetensors").touch()
    for is_kept, asked in ((True, [True]), (False, [True, False])):
        hub = Hub(tmp_path, is_kept)
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub.file)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot)
        name = "w.safetensors"
        assert find_file("owner/name", name, "model.checkpoint") == tmp_path / name
        assert hub.asked == [("owner/name", name, local) for local in asked]
        assert find_folder("owner/name", "model.checkpoint") == tmp_path
        assert [local for *_, local in hub.asked[len(asked) :]] == asked


def test_half_a_model_that_was_kept_is_fetched_again(tmp_path, monkeypatch):
    """Catches an incomplete download that is used as if complete."""
    shards = {"a": "m-1.safetensors", "b": "m-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (tmp_path / "m-1.safetensors").touch()
    assert not is_complete(tmp_path)
    hub = Hub(tmp_path, True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot)
    find_folder("owner/name", "model.checkpoint")
    assert [local for *_, local in hub.asked] == [True, False]
    (tmp_path / "m-2.safetensors").touch()
    assert is_complete(tmp_path)


def refuse(*_: object, **__: object) -> Path:
    raise LocalEntryNotFoundError("no connection\nand a second line")


def drop(*_: object, **__: object) -> Path:
    raise httpx.ConnectError("[Errno -2] Name or service not known")


@pytest.mark.parametrize(("fail", "reason"), [(refuse, "no connection"), (drop, "Name or service not known")])
def test_the_error_for_an_unreachable_file_has_its_name_source_and_place(monkeypatch, fail, reason):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(CheckpointError) as error:
        find_file("owner/name", "w.pt", "model.checkpoint")
    for part in ("w.pt", "https://huggingface.co/owner/name", reason, "give model.checkpoint="):
        assert part in str(error.value)


def test_what_is_no_file_of_the_model_is_a_clear_error_without_the_hub(tmp_path, monkeypatch):
    """Catches a mistyped path that is taken for a repository."""
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", pytest.fail)
    for place in ("nowhere.pt", "a/b/c"):
        with pytest.raises(CheckpointError, match=r"nothing at model\.checkpoint="):
            find_file(place, "w.pt", "model.checkpoint")
    with pytest.raises(CheckpointError, match=r"no w\.pt in the folder "):
        find_file(tmp_path, "w.pt", "model.checkpoint")


def test_a_revision_behind_an_id_is_fetched(monkeypatch, tmp_path):
    asked = []

    def fetch(*names, **options):
        asked.append((names, options))
        raise OSError("offline")

    for name in ("hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(huggingface_hub, name, fetch)
    with pytest.raises(CheckpointError, match=r"huggingface\.co/user/model/resolve/v1\.0/a\.pt"):
        find_file("user/model@v1.0", "a.pt", "model.checkpoint")
    with pytest.raises(CheckpointError):
        find_folder("user/model@refs/pr/1", "model.checkpoint")
    assert [(names, options.get("revision")) for names, options in asked] == [
        (("user/model", "a.pt"), "v1.0"), (("user/model", "a.pt"), "v1.0"),
        (("user/model",), "refs/pr/1"), (("user/model",), "refs/pr/1"),
    ]  # fmt: skip


@pytest.mark.parametrize("revision", ["", "@v1.0", f"@{'12' * 20}"])
def test_the_commit_of_what_was_read_is_known(tmp_path, monkeypatch, revision):
    """By the client's own cache, without the network. Catches the name of a branch in place of what it stood for."""
    commit, name = "12" * 20, f"owner/model{revision}"
    kept = tmp_path / "models--owner--model"
    (kept / "snapshots" / commit).mkdir(parents=True)
    (kept / "snapshots" / commit / "model.safetensors").touch()
    (kept / "refs").mkdir()
    for ref in ("main", "v1.0"):
        (kept / "refs" / ref).write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_commits", {})
    assert commit_of(name) is None
    find_folder(name, "model.checkpoint")
    assert commit_of(name) == commit
    hub._commits.clear()
    find_file(name, "model.safetensors", "model.checkpoint")
    assert commit_of(name) == commit


def test_a_local_folder_has_no_commit(tmp_path):
    place = tmp_path / "snapshots" / ("12" * 20)
    place.mkdir(parents=True)
    find_folder(place, "model.checkpoint")
    assert commit_of(place) is None
    assert commit_of(None) is None
