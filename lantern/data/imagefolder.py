"""Data set of a folder of captioned images (conf/data/imagefolder.yaml). Captions come from metadata.jsonl (file_name,
text) or from a .txt file beside each image."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lantern.data.image_io import SUFFIXES, caption_of, decode_text, problem_of, read_bytes
from lantern.data.prompts import LINE_END
from lantern.data.splits import IndexedImages, index_row
from lantern.errors import LanternError

IMAGES_PER_SHARD = 256  # of the index: at most so many are read again after a killed run
log = logging.getLogger(__name__)


def image_folder(
    folder: str, size: int, cache_dir: str, validation_share: float = 0.1, num_workers: int = 2
) -> IndexedImages:
    """All images below `folder`, recursively. a.png and a.jpg share a.txt and are two images."""
    folder = os.path.expanduser(folder)
    items = [(file, caption, size) for file, caption in find_images(Path(folder))]
    return IndexedImages(
        folder, items, index_files, read_bytes, size, cache_dir, validation_share, num_workers, IMAGES_PER_SHARD
    )


def find_images(folder: Path) -> list[tuple[str, str]]:
    """Files and captions ("" where none was found), sorted by file name."""
    if not folder.is_dir():
        raise LanternError(f"no folder {folder}; name a folder of images with data.folder=...")
    captions = _read_metadata(folder / "metadata.jsonl")
    files = {file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()}
    if not files:
        raise LanternError(f"no images in {folder}; put files ending in {' '.join(SUFFIXES)} there")
    if absent := sorted(str(file) for file in captions.keys() - files):
        log.warning("%d files of metadata.jsonl are not in %s: %s …", len(absent), folder, ", ".join(absent[:3]))
    return [(_as_text(file), captions.get(file) or _caption_beside(file)) for file in sorted(files)]


def _as_text(file: Path) -> str:
    try:
        return os.fsencode(file).decode()
    except UnicodeDecodeError as error:
        raise LanternError(f"the name of {os.fsencode(file)!r} is not UTF-8; rename that file") from error


def _read_metadata(path: Path) -> dict[Path, str]:
    if not path.is_file():
        return {}
    captions: dict[Path, str] = {}
    for number, line in enumerate(LINE_END.split(decode_text(path.read_bytes())), start=1):
        if line.strip():
            try:
                record = json.loads(line)
                file, caption = path.parent / record["file_name"], caption_of(record["text"], f"{path} line {number}")
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                wanted = '{"file_name": "a.png", "text": "a caption"}'
                raise LanternError(f"{path} line {number} is {line[:80]!r}; write {wanted}") from error
            if captions.setdefault(file, caption) != caption:
                log.warning("%s line %d names %s again; its first caption is used", path, number, record["file_name"])
    return captions


def _caption_beside(file: Path) -> str:
    text = file.with_suffix(".txt")
    return decode_text(text.read_bytes()).strip() if text.is_file() else ""


def index_files(items: list[tuple[str, str, int]]) -> Iterator[dict[str, Any]]:
    """A row of the index for each (file, caption, size)."""
    for file, caption, size in items:
        problem = problem_of(file, size) if caption else "no caption"
        yield index_row(file, file, problem, caption, size=-1)
