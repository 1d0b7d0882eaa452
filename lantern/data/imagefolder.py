"""Data set of a folder of captioned images (conf/data/imagefolder.yaml). Captions come from metadata.jsonl (file_name,
text) or from a .txt file beside each image."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lantern.data.image_io import CAPTION_KEYS, READ, caption_in, images_below, read_bytes, try_caption
from lantern.data.prompts import LINE_END, decode_text, printable
from lantern.data.splits import IndexedImages, index_image
from lantern.errors import LanternError

IMAGES_PER_SHARD = 256  # of the index: at most so many are read again after a killed run
log = logging.getLogger(__name__)


def image_folder(
    folder: str, size: int, cache_dir: str, validation_share: float = 0.1, num_workers: int = 2
) -> IndexedImages:
    """All images below `folder`, recursively. a.png and a.jpg share a.txt and are two images."""
    folder = os.path.expanduser(str(folder))
    items = [(*sample, size) for sample in find_images(folder)]
    return IndexedImages(
        folder, items, index_files, read_bytes, size, cache_dir, validation_share, num_workers, IMAGES_PER_SHARD
    )


def find_images(folder: str) -> list[tuple[str, str, str]]:
    """Files, captions and problems ("" where none was found): of the images, sorted by file name, and of those lines of
    metadata.jsonl that name none of them and cannot be used."""
    if not os.path.isdir(folder):
        raise LanternError(f"no folder {folder}; name a folder of images with data.folder=...")
    files = images_below(folder)
    if not files:
        raise LanternError(f"no images in {folder}; put files ending in {' '.join(READ)} there")
    lines = _read_metadata(Path(folder) / "metadata.jsonl")
    others = {file: line for file, line in lines.items() if file not in files}
    if absent := sorted(printable(str(file)) for file, (_, _, problem) in others.items() if not problem):
        log.warning("%d files of metadata.jsonl are not in %s: %s …", len(absent), folder, ", ".join(absent[:3]))
    found = [(str(file), *_caption(file, lines)) for file in sorted(files)]
    return found + [line for line in others.values() if line[2]]


def _read_metadata(path: Path) -> dict[Path, tuple[str, str, str]]:
    """The name, caption and problem of each line of metadata.jsonl, by the file that it is about."""
    lines: dict[Path, tuple[str, str, str]] = {}
    text = decode_text(path.read_bytes()) if path.is_file() else ""
    for number, line in enumerate(LINE_END.split(text), start=1):
        if line.strip():
            name = f"{path} line {number}"
            file, caption, problem = _read_line(line, path.parent, name)
            if lines.setdefault(file, (name, caption, problem))[1] != caption:
                named = printable(os.path.relpath(file, path.parent))
                log.warning("%s names %s again; its first caption is used", name, named)
    return lines


def _read_line(line: str, folder: Path, name: str) -> tuple[Path, str, str]:
    file = Path(name)  # until the line is known to be about another
    try:
        record = json.loads(line)
        file = folder / record["file_name"]
        if not record.keys() & set(CAPTION_KEYS):
            raise KeyError("text")
        return file, caption_in(record), ""
    except LanternError as error:
        return file, "", str(error)
    except (ValueError, TypeError, LookupError, RecursionError):  # of brackets and digits without end, among others
        return file, "", f'it is {line[:80]!r}; write {{"file_name": "a.png", "text": "a caption"}}'


def _caption(file: Path, lines: dict[Path, tuple[str, str, str]]) -> tuple[str, str]:
    """The caption of an image and its problem, by its line of metadata.jsonl, else by the .txt beside it."""
    name, caption, problem = lines.get(file, ("", "", ""))
    text = file.with_suffix(".txt")
    if caption or problem or not text.is_file():
        return caption, problem and f"{name}: {problem}"
    return try_caption(lambda: decode_text(text.read_bytes()))


def index_files(items: list[tuple[str, str, str, int]]) -> Iterator[dict[str, Any]]:
    """A row of the index for each (file, caption, problem, size)."""
    for file, caption, problem, size in items:
        yield index_image((file, 0, -1), file, caption, problem, size, read_bytes)
