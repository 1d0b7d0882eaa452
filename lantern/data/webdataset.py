"""Captioned images in WebDataset shards: tar files whose members a.jpg and a.txt (or a.json, a.cls) are one sample.
Images are read from inside the tar files; nothing is unpacked."""

import filecmp
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lantern.data.image_io import (
    SUFFIXES,
    caption_in,
    caption_keys,
    is_hidden,
    read_bytes,
    try_caption,
)
from lantern.data.splits import IndexedImages, find_files, index_image, index_row, is_readable
from lantern.data.text_tables import decode_text
from lantern.errors import LanternError

HEAD = 2**16  # bytes; shards of one size that share them are compared in full
Span = tuple[int, int]  # start and size of a member's content in its shard


def web_dataset(
    shards: str, size: int, cache_dir: str, validation_share: float = 0.1, num_workers: int = 2,
    caption_column: str | None = None, num_classes: int | None = None,
) -> IndexedImages:  # fmt: skip
    """shards: a folder of .tar files, a pattern such as data/*.tar, or data/{000..099}.tar. Missing shards and copies
    of others are listed with the unusable images. caption_column: the key of a caption in a .json, else caption, text
    or prompt; num_classes: of a model that is told classes, which a sample's .cls may name."""
    shards = os.path.expanduser(str(shards))
    files = find_shards(shards)
    originals = find_copies(files)
    keys = caption_keys(caption_column)
    items = [(file, size, originals.get(file), keys, num_classes) for file in files]
    return IndexedImages(shards, items, index_shards, read_bytes, size, cache_dir, validation_share, num_workers)


def find_shards(shards: str) -> list[str]:
    """The tar files, sorted by name, with those of a numbered range that are missing."""
    numbered = re.fullmatch(r"(.*)\{(\d{1,18})\.\.(\d{1,18})\}(.*)", shards)
    if numbered and not os.path.exists(shards):
        before, first, last, after = numbered.groups()
        if int(last) - int(first) >= 10**6:
            raise LanternError(f"{shards} is a range of more than a million shards; give a smaller one")
        files = [f"{before}{number:0{len(first)}d}{after}" for number in range(int(first), int(last) + 1)]
    else:
        files = find_files(shards, ".tar")
    if not any(map(os.path.isfile, files)):
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


def index_shards(items: list[tuple[str, int, str | None, Sequence[str], int | None]]) -> Iterator[dict[str, Any]]:
    """Rows of the index of each (shard file, image size, the shard it is a copy of, keys of captions, classes)."""
    for file, size, original, keys, num_classes in items:
        if original or not os.path.isfile(file):
            yield index_row(file, file, f"the shard has the same bytes as {original}" if original else "no such shard")
        else:
            yield from _index_shard(file, size, keys, num_classes)


def _index_shard(file: str, size: int, keys: Sequence[str], num_classes: int | None) -> Iterator[dict[str, Any]]:
    """One row per image. A truncated shard gives its complete samples, and a row with the problem."""
    images: dict[str, tuple[str, Span]] = {}
    texts: dict[str, list[tuple[str, Span]]] = {}
    contents, problems = _contents(file)
    suffixes = (".txt", ".json", *((".cls",) if num_classes else ()))
    for name, span in contents:
        key, suffix = _key_of(name)
        if suffix in SUFFIXES and key in images:
            problems.append((name, "a second image under this name"))
        elif suffix in SUFFIXES:
            images[key] = name, span
        elif suffix in suffixes:
            texts.setdefault(key, []).append((suffix, span))
    for key, (name, span) in images.items():
        caption, problem = _caption(file, texts.get(key, []), keys, num_classes)
        yield index_image((file, *span), f"{file}/{name}", caption, problem, size, read_bytes)
    for name, problem in problems:
        yield index_row(file, f"{file}/{name}", problem)


def _contents(file: str) -> tuple[list[tuple[str, Span]], list[tuple[str, str]]]:
    """Names and spans of the files in a shard; names of what is not used, with reasons. A link stands for the file of
    this shard that it leads to; one that leads out of it is not followed."""
    members, contents, problems, hidden = [], [], [], []
    try:
        with tarfile.open(file, "r:", errors="replace") as shard:  # of names
            for member in shard:
                if member.size < 0 or (_span(member) and member.offset_data + member.size > os.path.getsize(file)):
                    raise tarfile.ReadError(f"{member.name} is cut off")
                members.append(member)
    except Exception as error:  # tarfile raises ValueError, RecursionError and others on damaged headers
        problems.append((os.path.basename(file), f"the shard breaks off: {error}"))
    spans = {os.path.normpath(m.name): span for m in members if (span := _span(m))}
    links = {}
    for member in filter(lambda member: member.linkname, members):  # a symbolic one as seen from its own folder
        folder = os.path.dirname(member.name) if member.issym() else ""
        links[os.path.normpath(member.name)] = os.path.normpath(os.path.join(folder, member.linkname))
    for _ in range(8):  # a link may lead to a link
        spans = {name: spans[target] for name, target in links.items() if target in spans} | spans
    for member in members:
        name, suffix = member.name, _key_of(member.name)[1]
        if any(map(is_hidden, os.path.normpath(name).split("/"))):
            hidden += [name] if suffix in SUFFIXES else []
        elif span := _span(member) or spans.get(os.path.normpath(name)):
            contents.append((name, span))
        elif suffix in (*SUFFIXES, ".txt", ".json", ".cls") and not member.isdir():
            problems.append((name, "it is no plain file of this shard, nor a link to one"))
    if hidden:
        problems.append((hidden[0], f"{len(hidden)} hidden images were left out; this is the first"))
    return contents, problems


def _span(member: tarfile.TarInfo) -> Span | None:
    """Start and size of a file's content; None if it has none."""
    return (member.offset_data, member.size) if member.isreg() else None


def _caption(
    file: str, texts: list[tuple[str, Span]], keys: Sequence[str], num_classes: int | None
) -> tuple[str, str]:  # fmt: skip
    """The first caption among a sample's texts and records; without one, the first reason why."""
    first = sorted(texts, key=lambda text: text[0] != ".cls")  # .cls is among them only for a model of classes
    found = [try_caption(partial(_read_caption, file, keys, *text), num_classes) for text in first]
    return max(found, key=lambda pair: (pair[0] != "", pair[1] != ""), default=("", ""))


def _read_caption(file: str, keys: Sequence[str], suffix: str, span: Span) -> str:
    text = decode_text(read_bytes(file, *span))
    return caption_in(json.loads(text), keys) if suffix == ".json" else text


def _key_of(name: str) -> tuple[str, str]:
    """The key of a sample, and the suffix. By WebDataset's rule, up to the first dot, 22.05 and 22.06 would be one."""
    key, suffix = os.path.splitext(os.path.normpath(name))
    return key, suffix.lower()
