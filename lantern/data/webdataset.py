"""Captioned images in WebDataset shards: tar files whose members a.jpg and a.txt (or a.json) are one sample.
Images are read from inside the tar files; nothing is unpacked."""

import filecmp
import glob
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lantern.data.image_io import SUFFIXES, caption_in, decode_text, problem_of, read_bytes
from lantern.data.splits import IndexedImages, index_row, is_readable
from lantern.errors import LanternError

HEAD = 2**16  # bytes; shards of one size that share them are compared in full


def web_dataset(
    shards: str, size: int, cache_dir: str, validation_share: float = 0.1, num_workers: int = 2
) -> IndexedImages:
    """shards: a folder of .tar files, a pattern such as data/*.tar, or data/{000..099}.tar. Missing shards and copies
    of others are listed with the unusable images."""
    shards = os.path.expanduser(shards)
    files = find_shards(shards)
    originals = find_copies(files)
    items = [(file, size, originals.get(file)) for file in files]
    return IndexedImages(shards, items, index_shards, read_bytes, size, cache_dir, validation_share, num_workers)


def find_shards(shards: str) -> list[str]:
    """The tar files, sorted by name, with those of a numbered range that are missing."""
    numbered = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", shards)
    if numbered:
        before, first, last, after = numbered.groups()
        files = [f"{before}{number:0{len(first)}d}{after}" for number in range(int(first), int(last) + 1)]
    else:
        files = sorted(glob.glob(f"{shards}/*.tar" if Path(shards).is_dir() else shards))
    if not any(Path(file).is_file() for file in files):
        raise LanternError(f"no shards {shards}; give a folder of .tar files, a pattern, or data/{{000..099}}.tar")
    return files


def find_copies(files: list[str]) -> dict[str, str]:
    """The files that have the same bytes as an earlier one, with that one."""
    first: dict[tuple[int, str], str] = {}
    originals = {}
    for file in filter(is_readable, files):
        start = hashlib.sha256(read_bytes(file, 0, HEAD)).hexdigest()
        other = first.setdefault((os.path.getsize(file), start), file)
        if other != file and filecmp.cmp(file, other, shallow=False):
            originals[file] = other
    return originals


def index_shards(items: list[tuple[str, int, str | None]]) -> Iterator[dict[str, Any]]:
    """Rows of the index of each (shard file, image size, the shard it is a copy of)."""
    for file, size, original in items:
        if original or not Path(file).is_file():
            yield index_row(file, file, f"the shard has the same bytes as {original}" if original else "no such shard")
        else:
            yield from _index_shard(file, size)


def _index_shard(file: str, size: int) -> Iterator[dict[str, Any]]:
    """One row per image. A truncated shard gives its complete samples, and a row with the problem."""
    images: dict[str, tarfile.TarInfo] = {}
    captions: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    try:
        for member in _members(file):
            key, suffix = _key_of(member.name)
            if suffix in SUFFIXES and key in images:
                problems.append((member.name, "a second image under this name"))
            elif suffix in SUFFIXES:
                images[key] = member
            elif suffix in (".txt", ".json"):
                text = decode_text(read_bytes(file, member.offset_data, member.size))
                captions[key] = captions.get(key) or _caption(text, suffix, f"{file}, {member.name},")
    except (tarfile.TarError, EOFError, OSError) as error:
        problems.append((Path(file).name, f"the shard breaks off: {error}"))
    for key, member in images.items():
        caption = captions.get(key, "")
        place = member.offset_data, member.size
        problem = problem_of(read_bytes(file, *place), size) if caption else "no caption"
        yield index_row(file, f"{file}/{member.name}", problem, caption, *place)
    for name, problem in problems:
        yield index_row(file, f"{file}/{name}", problem)


def _members(file: str) -> Iterator[tarfile.TarInfo]:
    """The files in a shard. Raises ReadError at the first one that is truncated."""
    with tarfile.open(file, "r:", errors="replace") as shard:  # of names
        end = Path(file).stat().st_size
        for member in shard:
            if member.offset_data + member.size > end:
                raise tarfile.ReadError(f"{member.name} is cut off")
            if member.isfile():
                yield member


def _key_of(name: str) -> tuple[str, str]:
    """WebDataset's rule: everything up to the first dot of the file name is the sample's key."""
    folder, _, base = name.rpartition("/")
    key, dot, suffix = base.partition(".")
    return f"{folder}/{key}", (dot + suffix).lower()


def _caption(text: str, suffix: str, source: str) -> str:
    if suffix == ".txt":
        return text.strip()
    try:
        return caption_in(json.loads(text), source)
    except json.JSONDecodeError:
        return ""
