"""Data sets: the contract of named splits, and captioned images left in their original files, of which an index of
locations and of unusable images is computed once and cached; pixels are read at each access."""

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from datasets import Dataset, Features, Value

from lantern.data.cached_table import cached_rows
from lantern.data.image_io import NAMES_SHOWN, READ, as_class, load_image, problem_of
from lantern.data.text_tables import is_text, printable
from lantern.errors import LanternError, explaining, first_line
from lantern.identity import digest
from lantern.runtime.files import file_stats, replace_text

LOCATION = ("file", "start", "size")  # the arguments of a Read
FEATURES = Features(
    {name: Value("string") for name in ("file", "name", "caption", "problem")}
    | {name: Value("int64") for name in ("start", "size")}
)
SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")
NAMED = re.compile(rf"((?:.*?/)??({'|'.join(SPLITS)})(?:[-.][^/#]*|[-._]?\d[^/#]*)?)[/#]", re.IGNORECASE)  # in a path
RULES = 5  # by which samples are used or listed; an index made by others is made again
log = logging.getLogger(__name__)
Place = tuple[str, int, int]  # file, start, size
Read = Callable[[str, int, int], bytes]  # of a Place -> an encoded image


class Sample(NamedTuple):
    """What a reader finds in a data set's files: an image, or a file without one."""

    place: Place
    name: str  # its part below the source decides the split
    caption: str = ""
    problem: str = ""  # why it cannot be used, as far as the reader knows


class Split(Protocol):
    """A sequence of items, which are dicts."""

    fingerprint: str  # a key of everything the items depend on

    @property
    def captions(self) -> list[str]: ...  # of all items, without reading them

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> dict[str, Any]: ...


class Splits(Protocol):
    """A data set: its splits by name, at least `train` and `validation`."""

    def split(self, name: str) -> Split: ...


class UnusableImageError(LanternError):
    """One image of a data set that cannot be decoded; the others can."""

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(f"{name}: {problem}" if name else problem)
        self.problem, self.name = problem, name


class SplitsBySource:
    """Takes each split from a data set of its own."""

    def __init__(self, **sources: Splits) -> None:
        self.sources = sources

    def split(self, name: str) -> Split:
        return self.sources[name].split(name)


class IndexedSplit(Sequence):
    """Items {"image": uint8 [size, size, 3], "caption"}, decoded at each access."""

    def __init__(self, rows: Dataset, read: Read, size: int, fingerprint: str) -> None:
        self.rows, self.read, self.size, self.fingerprint = rows, read, size, fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        return {"image": self._image(row).copy(), "caption": row["caption"]}  # torch.from_numpy needs a writable array

    def _image(self, row: dict[str, Any]) -> np.ndarray:
        try:  # listed when it was there: the file has changed since, or its disk is gone
            with explaining(f"{row['name']} in {row['file']} can no longer be read", "start again", LanternError):
                content = self.read(*(row[key] for key in LOCATION))
        except UnusableImageError as error:
            raise UnusableImageError(error.problem, row["name"]) from error
        try:
            return load_image(content, self.size, 2 * self.size)
        except Exception as error:  # decoders raise struct.error, IndexError and others on damaged files
            raise UnusableImageError(first_line(error), row["name"]) from error

    @property
    def captions(self) -> list[str]:
        return list(self.rows["caption"])


class IndexedImages:
    """Splits by name where every image lies in a folder or shard of a split's name (train/, val2017/, test-0001.tar)
    and some in train; test images are left out. Else, and for validation where no name says so, by a hash of each path
    below the source, so that added images move none to another split. `skipped`: problems of unusable ones by name."""

    def __init__(
        self, source: str, items: list, find: Callable[[Any], Iterable[Sample]], read: Read, size: int, cache_dir: str,
        validation_share: float, num_classes: int | None, items_per_shard: int = 1, is_checked: bool = True,
    ) -> None:  # fmt: skip
        """items: tuples that begin with a file; find: the samples of one, unusable ones too; read: an image's bytes;
        num_classes: of a model that is told classes; is_checked: images are decoded once, to list damaged ones."""
        self.source, self.read, self.size, self.validation_share = source, read, size, validation_share
        self.fingerprint = digest([RULES, items, size, num_classes, file_stats([item[0] for item in items])])
        folder = Path(cache_dir).expanduser() / f"list-{self.fingerprint}"

        def index(chosen: Sequence) -> Iterator[dict[str, Any]]:
            for (file, *at), name, caption, problem in chain.from_iterable(map(find, chosen)):
                caption, unfit = as_class(caption, num_classes)
                problem = problem or unfit or ("" if caption else "no caption")
                problem = problem or (problem_of(partial(read, file, *at), size) if is_checked else "")
                if not is_text(file):
                    file, problem = printable(file), "the name of its file or folder is not UTF-8; rename it"
                told = {"name": printable(name), "problem": printable(problem)}
                yield {"file": file, "start": at[0], "size": at[1], "caption": caption, **told}

        self.rows = cached_rows(folder, index, items, FEATURES, items_per_shard)
        problems = zip(self.rows["name"], self.rows["problem"], strict=True)
        self.skipped = {name: problem for name, problem in problems if problem}
        report_skipped(self.skipped, len(self.rows), source, folder / "skipped.txt")

    def split(self, name: str) -> IndexedSplit:
        if name not in ("train", "validation"):
            raise LanternError(f"{self.source} has no split {name!r}; use train or validation")
        problems = list(self.rows["problem"])
        splits = self._splits(_paths_below(self.source, self.rows["name"]), problems)
        chosen = [index for index, problem in enumerate(problems) if splits[index] == name and not problem]
        if name == "train" and "test" in splits:
            log.info("the %d images of test in %s are left out", splits.count("test"), self.source)
        if not chosen:
            raise LanternError(f"no image of {self.source} falls into {name}; add images or set data.validation_share")
        key = digest([self.fingerprint, name, self.validation_share, "by folder or path"])
        return IndexedSplit(self.rows.select(chosen), self.read, self.size, key)

    def _splits(self, paths: Sequence[str], problems: Sequence[str]) -> list[str]:
        known = zip(paths, problems, strict=True)  # a line of metadata that names no image is a problem, too
        images = [path for path, problem in known if not problem or Path(path).suffix.lower() in READ]
        named = named_splits(images)
        matches = [NAMED.match(path) for path in paths]
        splits = [named.get(match[1], "train") if match else "train" for match in matches]
        if "validation" in splits:
            return splits
        hashed = (int.from_bytes(hashlib.sha256(path.encode()).digest()[:6]) for path in paths)  # below 2^48
        held_out = (number / 2**48 < self.validation_share for number in hashed)
        pairs = zip(held_out, splits, strict=True)
        return ["validation" if split == "train" and is_held_out else split for is_held_out, split in pairs]


def named_splits(images: Sequence[str]) -> dict[str, str]:
    """The folders and shards whose names are those of splits, each with its split; empty unless every image lies in
    one, and some in train and some not."""
    matches = [NAMED.match(path) for path in images]
    places = {match[1]: SPLITS[match[2].lower()] for match in matches if match}
    return places if None not in matches and "train" in places.values() and len({*places.values()}) > 1 else {}


def report_skipped(skipped: Mapping[str, str], total: int, source: str, path: Path) -> None:
    """Lists unusable images, their problems by name, in a file and, the first of them, in the log."""
    if not skipped:
        return
    lines = [f"{name}: {problem}" for name, problem in skipped.items()]
    replace_text(path, "\n".join(lines) + "\n")
    shown = "; ".join(lines[:NAMES_SHOWN])
    if len(lines) == total:
        raise LanternError(
            f"none of the {total} images in {source} can be used, listed in {path}: {shown}; give images that can be "
            "read, with captions as docs/training.md says"
        )
    log.warning("skipped %d of %d images in %s, listed in %s: %s", len(lines), total, source, path, shown)


def root_of(source: str) -> str:
    """A folder itself; of a file or a pattern the last folder that exists."""
    return next((str(path) for path in (Path(source), *Path(source).parents) if os.path.isdir(path)), "")


def _paths_below(source: str, names: Sequence[str]) -> list[str]:
    """The paths below the source: a folder, or of a pattern the folder before its first wildcard."""
    above = os.path.join(os.path.normpath(root_of(source)), "")
    return [os.path.normpath(name).removeprefix(above) for name in names]
