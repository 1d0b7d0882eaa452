"""Data set of a folder of images (conf/data/imagefolder.yaml). Captions come from the metadata of the folder or of one
in it (metadata.jsonl, .csv or .parquet, with file_name and a caption), or from a .txt file beside each image. For a
model of classes an image without one has the class of its folder."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from lantern.data.image_io import READ, as_class, caption_in, caption_keys, images_below, read_bytes, try_caption
from lantern.data.splits import IndexedImages, Sample, named_splits
from lantern.data.text_tables import TABLES, Record, decode_text, printable, read_records
from lantern.errors import LanternError
from lantern.runtime.files import is_readable
from lantern.runtime.home import HOME

IMAGES_PER_SHARD = 256  # of the index: at most so many are read again after a killed run
SYNSETS = HOME / "data" / "imagenet_synsets.txt"  # of ImageNet's classes 0 to 999
Lines = dict[Path, tuple[str, str, str]]  # by image: the name, caption and problem of its line of metadata
log = logging.getLogger(__name__)


def image_folder(
    folder: str, size: int, cache_dir: str, validation_share: float = 0.1, caption_column: str | None = None,
    num_classes: int | None = None,
) -> IndexedImages:  # fmt: skip
    """All images below `folder`, recursively. a.png and a.jpg share a.txt and are two images. caption_column: of the
    metadata, else caption, text or prompt; num_classes: of a model that is told classes, which folders then are."""
    folder = os.path.expanduser(str(folder))
    items = find_images(folder, caption_keys(caption_column), num_classes)
    return IndexedImages(
        folder, items, lambda item: [Sample((item[0], 0, -1), *item)], read_bytes, size, cache_dir, validation_share,
        num_classes, IMAGES_PER_SHARD,
    )  # fmt: skip


def find_images(
    folder: str, keys: Sequence[str] = caption_keys(None), num_classes: int | None = None
) -> list[tuple[str, str, str]]:
    """Files, captions and problems ("" where none was found): of the images, sorted by file name, and of those lines of
    metadata that name none of them and cannot be used."""
    if not os.path.isdir(folder):
        raise LanternError(f"no folder {folder}; name a folder of images with data.folder=...")
    files = images_below(folder)
    if not files:
        raise LanternError(f"no images in {folder}; put files ending in {' '.join(READ)} there")
    lines: Lines = {}
    for table in _find_metadata(Path(folder), files):
        _add_metadata(lines, table, keys)
    others = {file: line for file, line in lines.items() if file not in files}
    if absent := [f"{name}: {printable(str(file))}" for file, (name, _, problem) in others.items() if not problem]:
        log.warning("%d files that metadata names are not in %s: %s …", len(absent), folder, absent[0])
    splits = named_splits([str(file.relative_to(folder)) for file in files])
    outer = {Path(folder), *(Path(folder) / place for place in splits)}  # no class
    named = {file.parent.name for file in files if file.parent not in outer} if num_classes else set()
    classes = class_numbers(named, num_classes) if num_classes and named else {}
    found = [(str(file), *_caption(file, lines, classes, num_classes)) for file in sorted(files)]
    return found + [line for line in others.values() if line[2]]


def _find_metadata(folder: Path, files: set[Path]) -> list[Path]:
    """The tables in the folders of the images and in those above, the outer ones first."""
    places = {folder}
    for place in {file.parent for file in files}:
        while place not in places:
            places.add(place)
            place = place.parent
    tables = [place / f"metadata{suffix}" for place in sorted(places) for suffix in TABLES]
    return [table for table in tables if is_readable(str(table))]


def _add_metadata(lines: Lines, table: Path, keys: Sequence[str]) -> None:
    for record in read_records(table):
        file, caption, problem = _read_record(record, table.parent, keys)
        if lines.setdefault(file, (record.name, caption, problem))[1] != caption:
            named = printable(os.path.relpath(file, table.parent))
            log.warning("%s names %s again; its first caption is used", record.name, named)


def _read_record(record: Record, folder: Path, keys: Sequence[str]) -> tuple[Path, str, str]:
    values, name = record.values, record.values.get("file_name")
    if record.problem or not isinstance(name, str) or not values.keys() & set(keys):
        told = f"it has no file_name, or no {keys[0]}; give a row the name of its image, and its caption"
        return Path(record.name), "", record.problem or told
    return folder / name, *try_caption(lambda: caption_in(values, keys))


def _caption(file: Path, lines: Lines, classes: dict[str, int], num_classes: int | None) -> tuple[str, str]:
    """The caption of an image and its problem, by its line of the metadata, else by the .txt beside it. For a model of
    classes its folder's class, unless its own caption is the number of one."""
    name, caption, problem = lines.get(file, ("", "", ""))
    text = next(filter(Path.is_file, (file.with_suffix(suffix) for suffix in (".txt", ".TXT"))), None)
    if problem:
        return caption, f"{name}: {problem}"
    if not caption and text:
        caption, problem = try_caption(lambda: decode_text(text.read_bytes()))
    number = classes.get(file.parent.name)
    if problem or number is None or (caption and not as_class(caption, num_classes)[1]):
        return caption, problem
    return str(number), ""


def class_numbers(folders: set[str], num_classes: int) -> dict[str, int]:
    """The class of each folder: for an ImageNet synset its index among the 1,000, for a number that number, otherwise
    the folder's index among these, sorted by name."""
    names, known = sorted(folders), synsets()
    if folders <= known.keys():
        numbers = {name: known[name] for name in names}
    elif all(name.isascii() and name.isdecimal() for name in names):
        numbers = {name: int(name) for name in names}
    else:
        numbers = {name: number for number, name in enumerate(names)}
        log.warning(
            "%d folders are taken as the classes 0 to %d in the order of their names, %s first; for others name the "
            "folders by the classes' numbers", len(names), len(names) - 1, printable(names[0]),
        )  # fmt: skip
    if too_high := [name for name in names if numbers[name] >= num_classes]:
        raise LanternError(
            f"the folder {printable(too_high[0])} is class {numbers[too_high[0]]}, and the model has {num_classes} "
            "classes from 0 on; give another folder, or one of images with captions to a model of texts"
        )
    return numbers


def synsets() -> dict[str, int]:
    """ImageNet's classes by their synsets."""
    return {synset: number for number, synset in enumerate(SYNSETS.read_text().split())}
