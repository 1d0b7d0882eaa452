"""Finds a model's files: at a path of this machine or in a repository of the Hugging Face Hub, cached by its client.
The error for a missing file names the file, its source and size, and where to put it."""

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
MODEL_FILES = ("*.safetensors", "*.json", "*.model", "*.txt", "*.tiktoken")
GENERATION_FILE = "generation_config.json"
COMMIT = re.compile(r"[/\\]snapshots[/\\]([0-9a-f]{40})\b")  # in the paths of the client's cache
UNREACHABLE = (HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError, ValueError)
_commits: dict[str, str] = {}  # by Hub id, with its revision, of what this process has found


def find_file(source: str | Path, name: str, setting: str, size: int) -> Path:
    """The file `name` of a model. source: the file itself, its folder, or a Hub id; setting: the config key
    of source; size: bytes, for the message."""
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        if (path / name).is_file():
            return path / name
        raise CheckpointError(f"no {name} in the folder {path}{gigabytes(size)}; give {setting}=<its path>")
    fetch = _of(source, huggingface_hub.hf_hub_download, name)
    return _of_the_hub(source, name, setting, size, fetch, Path.is_file)


def commit_of(source: object) -> str | None:
    """The commit that a Hub id, with or without @revision, stood for when this process found its files; None for a path
    and for what was not looked for."""
    return _commits.get(str(source))


def _noted(source: str | Path, found: Path) -> Path:
    if commit := COMMIT.search(str(found)):
        _commits[str(source)] = commit[1]
    return found


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
        return _cached_or_fetched(_of(source, huggingface_hub.hf_hub_download, name), Path.is_file)
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


def _of(source: str | Path, fetch: Callable[..., str], *names: str) -> Callable[..., str]:
    """A fetch of the Hub's client, of a repository with or without @revision."""
    repository, _, revision = str(source).partition("@")
    return partial(fetch, repository, *names, **({"revision": revision} if revision else {}))


def is_complete(folder: Path) -> bool:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    return all((folder / shard).is_file() for shard in json.loads(index.read_bytes())["weight_map"].values())


def find_folder(
    source: str | Path, setting: str, size: int = 0, files: Sequence[str] = MODEL_FILES,
    suffices: Callable[[Path], bool] = is_complete,
) -> Path:  # fmt: skip
    """A model folder, by default with the files that transformers reads. source: that folder, or a Hub id; suffices:
    whether a cached folder is complete."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    fetch = partial(_of(source, huggingface_hub.snapshot_download), allow_patterns=list(files))
    return _of_the_hub(source, "", setting, size, fetch, suffices)


def _of_the_hub(
    source: str | Path, name: str, setting: str, size: int, fetch: Callable[..., str], suffices: Callable[[Path], bool]
) -> Path:
    """name: of one file, "" for a folder of them."""
    what = f"{name or 'the folder of the model'}{gigabytes(size)}"
    if not (known := HUB_ID.fullmatch(str(source))):
        raise CheckpointError(f"nothing at {setting}={source}; give the path of {what}, or a Hub id")
    repository, revision = known.groups("main")
    link = f"https://huggingface.co/{repository}" + (f"/resolve/{revision}/{name}" if name else "")
    remedy = f"fetch it elsewhere, put it anywhere here and give {setting}=<its path>"
    with explaining(f"{what} is not on this machine and could not be fetched from {link}", remedy):
        return _noted(source, _cached_or_fetched(fetch, suffices))


def _cached_or_fetched(fetch: Callable[..., str], suffices: Callable[[Path], bool]) -> Path:
    """The cached files, without network access, if complete; else fetched from the Hub."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # hides a warning per retry
    try:
        if suffices(path := Path(fetch(local_files_only=True))):
            return path
    except UNREACHABLE:
        pass
    return Path(fetch())


def gigabytes(size: int) -> str:
    """A size in parentheses; nothing for 0, of what is not known before its config.json is."""
    told = f"about {size / 1e9:.1f} GB" if size >= 1e8 else f"about {max(1, round(size / 1e6))} MB"
    return f" ({told})" if size else ""
