"""Where files come from: paths, folders, the Hub, and what is said when they cannot be had. No network is asked."""

from pathlib import Path

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from lantern.errors import CheckpointError
from lantern.models.files import find_file, find_folder

SIZE = 446_000_000


def test_a_file_is_found_by_its_path_and_by_its_folder(tmp_path):
    (tmp_path / "w.pt").touch()
    assert find_file(tmp_path / "w.pt", "other.pt", "model.checkpoint", SIZE) == tmp_path / "w.pt"
    assert find_file(tmp_path, "w.pt", "model.checkpoint", SIZE) == tmp_path / "w.pt"
    assert find_folder(tmp_path, "model.checkpoint", SIZE) == tmp_path


def test_a_hub_id_is_asked_for_that_file(tmp_path, monkeypatch):
    """Catches a repository and a file that change places."""
    asked = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *names: asked.append(names) or tmp_path / "w.pt")
    assert find_file("owner/name", "w.pt", "model.checkpoint", SIZE) == tmp_path / "w.pt"
    assert asked == [("owner/name", "w.pt")]


def refuse(*_: object, **__: object) -> Path:
    raise LocalEntryNotFoundError("no connection\nand a second line")


def drop(*_: object, **__: object) -> Path:
    raise httpx.ConnectError("[Errno -2] Name or service not known")


@pytest.mark.parametrize(("fail", "reason"), [(refuse, "no connection"), (drop, "Name or service not known")])
def test_an_unreachable_file_says_which_whence_how_large_and_where_to_put_it(monkeypatch, fail, reason):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(CheckpointError) as error:
        find_file("owner/name", "w.pt", "model.checkpoint", SIZE)
    said = str(error.value)
    assert said.startswith("w.pt (about 0.4 GB) is not on this machine")
    assert "https://huggingface.co/owner/name/resolve/main/w.pt" in said
    assert reason in said
    assert "give model.checkpoint=<its path>" in said
    assert "\n" not in said


def test_an_unreachable_folder_says_the_same(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(CheckpointError, match=r"files of owner/name \(about 13\.6 GB\) .* give model\.checkpoint=<the"):
        find_folder("owner/name", "model.checkpoint", 13_600_000_000)


@pytest.mark.parametrize("place", ["nowhere.pt", "/no/such/folder", "a/b/c"])
def test_a_path_where_nothing_is_never_reaches_the_hub(monkeypatch, place):
    """Catches a mistyped path that is taken for a repository."""
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", None)
    with pytest.raises(CheckpointError, match=r"nothing at model\.checkpoint="):
        find_file(place, "w.pt", "model.checkpoint", SIZE)


def test_a_folder_without_the_file_and_a_file_in_place_of_a_folder_are_clear_errors(tmp_path):
    with pytest.raises(CheckpointError, match=r"no w\.pt in the folder .*0\.4 GB"):
        find_file(tmp_path, "w.pt", "model.checkpoint", SIZE)
    (tmp_path / "w.pt").touch()
    with pytest.raises(CheckpointError, match="is a file; give the folder"):
        find_folder(tmp_path / "w.pt", "model.checkpoint", SIZE)
