"""Captioned images in WebDataset shards: tar files whose members a.jpg and a.txt (or a.json, a.cls) are one sample.
Images are read from inside the tar files; nothing is unpacked."""

import glob
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from lantern.data.image_io import SUFFIXES, caption_in, caption_keys, is_hidden, read_bytes, try_caption
from lantern.data.splits import IndexedImages, Sample, root_of
from lantern.data.text_tables import decode_text
from lantern.errors import LanternError

Span = tuple[int, int]  # start and size of a member's content in its shard


def web_dataset(
    shards: str, size: int, cache_dir: str, validation_share: float = 0.1, caption_column: str | None = None,
    num_classes: int | None = None,
) -> IndexedImages:  # fmt: skip
    """shards: a folder of .tar files, a pattern such as data/*.tar, or data/{000..099}.tar. Missing shards
    are listed with the unusable images. caption_column: the key of a caption in a .json, else caption, text
    or prompt; num_classes: of a model that is told classes, which a sample's .cls may name."""
    shards = os.path.expanduser(str(shards))
    items = [(file, caption_keys(caption_column), bool(num_classes)) for file in find_shards(shards)]
    return IndexedImages(shards, items, find_samples, read_bytes, size, cache_dir, validation_share, num_classes)


def find_shards(shards: str) -> list[str]:
    """The tar files, sorted by name, with those of a numbered range that are missing."""
    numbered = re.fullmatch(r"(.*)\{(\d{1,6})\.\.(\d{1,6})\}(.*)", shards)
    if numbered and not os.path.exists(shards):
        before, first, last, after = numbered.groups()
        files = [f"{before}{number:0{len(first)}d}{after}" for number in range(int(first), int(last) + 1)]
    else:
        files = _files(shards)
    if not any(map(os.path.isfile, files)):
        raise LanternError(f"no shards {shards}; give a folder of .tar files, a pattern, or data/{{000..099}}.tar")
    return files


def _files(source: str) -> list[str]:
    """The .tar files of a folder, or, where it has none, of its folders, as the Hub lays them out (data/*.tar); or of a
    pattern; sorted. What exists is no pattern: `data [v2]`."""
    if not source or os.path.isfile(source):
        return [source] if source else []
    root = root_of(source)
    pattern = "*.tar" if os.path.isdir(source) else str(Path(source).relative_to(root))
    found = glob.glob(pattern, root_dir=root)
    if not found and os.path.isdir(source):
        found = glob.glob("**/*.tar", root_dir=root, recursive=True)
    return sorted(str(Path(root) / name) for name in found)


def find_samples(item: tuple[str, Sequence[str], bool]) -> Iterator[Sample]:
    """Of a shard, with the keys of captions and whether a .cls is one. A truncated shard's last one is the problem."""
    file, keys, has_classes = item
    images: dict[str, tuple[str, Span]] = {}
    texts: dict[str, list[tuple[str, Span]]] = {}
    contents, problems = _contents(file) if os.path.isfile(file) else ([], [("", "no such shard")])
    for name, span in contents:
        key, suffix = _key_of(name)
        if suffix in SUFFIXES and key in images:
            problems.append((name, "a second image under this name"))
        elif suffix in SUFFIXES:
            images[key] = name, span
        elif suffix in (".txt", ".json") or (suffix == ".cls" and has_classes):
            texts.setdefault(key, []).append((suffix, span))
    for key, (name, span) in images.items():
        yield Sample((file, *span), f"{file}/{name}", *_caption(file, texts.get(key, []), keys))
    for name, problem in problems:
        yield Sample((file, 0, 0), f"{file}/{name}".rstrip("/"), problem=problem)


def _contents(file: str) -> tuple[list[tuple[str, Span]], list[tuple[str, str]]]:
    """Names and spans of the files in a shard; names of what is not used, with reasons. Links are not followed."""
    contents, problems, hidden = [], [], []
    try:
        with tarfile.open(file, "r:", errors="replace") as shard:  # of names
            for member in shard:
                name, suffix = member.name, _key_of(member.name)[1]
                is_plain = member.isreg() and not member.issparse()  # which has its content in parts
                if is_plain and not 0 <= member.size <= os.path.getsize(file) - member.offset_data:
                    raise tarfile.ReadError(f"{name} is cut off")
                if any(map(is_hidden, os.path.normpath(name).split("/"))):
                    hidden += [name] if suffix in SUFFIXES else []
                elif is_plain:
                    contents.append((name, (member.offset_data, member.size)))
                elif suffix in SUFFIXES:
                    problems.append((name, "it is no plain file of this shard"))
    except Exception as error:  # tarfile raises ValueError, RecursionError and others on damaged headers
        problems.append((os.path.basename(file), f"the shard breaks off: {error}"))
    if hidden:
        problems.append((hidden[0], f"{len(hidden)} hidden images were left out; this is the first"))
    return contents, problems


def _caption(file: str, texts: list[tuple[str, Span]], keys: Sequence[str]) -> tuple[str, str]:
    """The first caption among a sample's texts and records, its class before others; else the first reason why."""
    texts = sorted(texts, key=lambda text: text[0] != ".cls")
    found = [try_caption(partial(_read_caption, file, keys, *text)) for text in texts]
    return max(found, key=lambda pair: (pair[0] != "", pair[1] != ""), default=("", ""))


def _read_caption(file: str, keys: Sequence[str], suffix: str, span: Span) -> str:
    text = decode_text(read_bytes(file, *span))
    return caption_in(json.loads(text), keys) if suffix == ".json" else text


def _key_of(name: str) -> tuple[str, str]:
    """The key of a sample, and the suffix. By WebDataset's rule, up to the first dot, 22.05 and 22.06 would be one."""
    key, suffix = os.path.splitext(os.path.normpath(name))
    return key, suffix.lower()
