"""Finds a model's files: at a path of this machine or in a repository of the Hugging Face Hub, cached by its client.
The error for a missing file names the file, its source, and where to put it."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import httpx

from lantern.errors import CheckpointError, explaining

HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")  # with a revision: a branch, tag or commit
MODEL_FILES = ("*.safetensors", "*.json", "*.model", "*.txt")
GENERATION_FILE = "generation_config.json"
COMMIT = re.compile(r"[/\\]snapshots[/\\]([0-9a-f]{40})\b")  # in the paths of the client's cache
UNREACHABLE = (HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError, ValueError)
Suffices = Callable[[Path], bool]  # whether a cached file or folder is complete
_commits: dict[str, str] = {}  # by Hub id, with its revision, of what this process has found


def is_complete(folder: Path) -> bool:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    return all((folder / shard).is_file() for shard in json.loads(index.read_bytes())["weight_map"].values())


def find_file(source: str | Path, name: str, setting: str) -> Path:
    """The file `name` of a model. source: the file, its folder, or a Hub id; setting: the config key of source."""
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        if (path / name).is_file():
            return path / name
        raise CheckpointError(f"no {name} in the folder {path}; give {setting}=<its path>")
    return _of_the_hub(source, setting, huggingface_hub.hf_hub_download, Path.is_file, name)


def find_folder(
    source: str | Path, setting: str, files: Sequence[str] = MODEL_FILES, suffices: Suffices = is_complete
) -> Path:
    """A model folder, by default with the files that transformers reads. source: that folder, or a Hub id; suffices:
    whether a cached folder is complete."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    return _of_the_hub(source, setting, partial(huggingface_hub.snapshot_download, allow_patterns=[*files]), suffices)


def _of_the_hub(source: str | Path, setting: str, fetch: Callable[..., str], suffices: Suffices, *name: str) -> Path:
    """name: of one file, none for a folder of them."""
    what = name[0] if name else "the folder of the model"
    if not (known := HUB_ID.fullmatch(str(source))):
        raise CheckpointError(f"nothing at {setting}={source}; give the path of {what}, or a Hub id")
    repository, revision = known.groups("main")
    link = "/".join(["https://huggingface.co", repository, *(("resolve", revision, *name) if name else ())])
    remedy = f"fetch it elsewhere, put it anywhere here and give {setting}=<its path>"
    with explaining(f"{what} is not on this machine and could not be fetched from {link}", remedy):
        found = _cached_or_fetched(source, fetch, suffices, *name)
    if commit := COMMIT.search(str(found)):
        _commits[str(source)] = commit[1]
    return found


def _cached_or_fetched(source: str | Path, fetch: Callable[..., str], suffices: Suffices, *name: str) -> Path:
    """The cached files, without network access, if complete; else fetched. source: with or without @revision."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # hides a warning per retry
    repository, _, revision = str(source).partition("@")
    fetch = partial(fetch, repository, *name, revision=revision or None)
    with suppress(*UNREACHABLE):
        if suffices(path := Path(fetch(local_files_only=True))):
            return path
    return Path(fetch())


def commit_of(source: object) -> str | None:
    """The commit that a Hub id, with or without @revision, stood for when this process found its files; else None."""
    return _commits.get(str(source))


def optional_file(source: str | Path, name: str) -> Path | None:
    """A small file beside a model's others, in its folder or from the Hub; None if it is not there."""
    if (place := Path(source).expanduser()).exists() or not HUB_ID.fullmatch(str(source)):
        found = (place if place.is_dir() else place.parent) / name
        return found if found.is_file() else None
    return _of_hub(str(source), name)


@lru_cache
def _of_hub(source: str, name: str) -> Path | None:
    """Asked once: without a connection an answer takes half a minute."""
    with suppress(*UNREACHABLE):
        return _cached_or_fetched(source, huggingface_hub.hf_hub_download, Path.is_file, name)
    return None


def generation_setting(name: str, default: object, folder: str = "", *, _root_: Any) -> object:
    """A setting of sampling by the generation_config.json of the model's checkpoint, else the default: what conf/model
    writes as ${generation:name,default}. folder: of the file within the checkpoint's."""
    checkpoint = _root_.model.checkpoint
    files = [f"{folder}/{GENERATION_FILE}", GENERATION_FILE] if folder else [GENERATION_FILE]
    found_files = (optional_file(checkpoint, file) for file in files if checkpoint)
    path = next(filter(None, found_files), None)
    found = json.loads(path.read_bytes()).get(name) if path else None
    return default if found is None else found
