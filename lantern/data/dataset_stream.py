"""Captioned images that `datasets` streams, from the Hub or from local files in any form that it reads
(conf/data/hub.yaml). Captions are listed in a first pass; images are read in a second, once their tokens are made."""

import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import fsspec
import pyarrow

from lantern.data.image_io import caption_keys, try_caption
from lantern.data.imagefolder import class_numbers, synsets
from lantern.data.splits import IndexedImages, Sample, UnusableImageError
from lantern.data.text_tables import column_of
from lantern.errors import LanternError, explaining, first_line

BATCH = 32  # rows in memory at once
DAMAGED = (pyarrow.ArrowException, tarfile.TarError, zipfile.BadZipFile, TypeError, ValueError)


class Stream:
    """The rows of a split, in order, with their images left encoded."""

    def __init__(
        self, name: str, split: str, image_column: str | None = None, columns: list[str] | None = None,
        config: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """config, options: of `datasets.load_dataset`; columns: the only ones to read, where the files allow it."""
        from datasets import Image, load_dataset_builder  # takes seconds to import

        self.name, place = name, f"{name}:{split}"
        remedy = "give one that `datasets` reads, and a split of it, or without a network its files, fetched elsewhere"
        with explaining(f"{place} cannot be fetched or read", remedy, LanternError):
            builder = load_dataset_builder(name, config, **options)
            if columns and hasattr(builder.config, "columns"):
                builder.config.columns = columns
            rows = builder.as_streaming_dataset(split)
            self.columns = list(rows.features or next(iter(rows), {}))  # a .csv states none
        kinds = rows.features or {}
        for key in [key for key, kind in kinds.items() if isinstance(kind, Image)]:
            rows = rows.cast_column(key, Image(decode=False))
        images = [image_column] if image_column else [key for key, kind in kinds.items() if _holds_images(kind)]
        self.image_column = column_of(self.columns, images, "data.image_column=…", place) if images else None
        self.rows = rows
        known = (rows.info.splits or {}).get(split) if rows.info else None
        self.count: int | None = known.num_examples if known and known.num_examples else None
        self.fingerprint = [builder.config_id, builder.hash, split]
        self._files = {str(file) for files in (builder.config.data_files or {}).values() for file in files}

    def read(self, columns: list[str], part: int | None = None) -> Iterator[dict[str, pyarrow.Scalar]]:
        """All rows, or those of a part of rows.num_shards."""
        rows = self.rows if part is None else self.rows.shard(self.rows.num_shards, part)
        for batch in rows.select_columns(columns).with_format("arrow").iter(BATCH):
            yield from ({key: batch[key][i] for key in columns} for i in range(batch.num_rows))

    def content(self, cell: pyarrow.Scalar) -> bytes:
        """The encoded image of a cell. A path in it is opened only if it names a file of the data set itself."""
        value = cell.as_py()
        value = value if isinstance(value, Mapping) else {"bytes": value}
        if isinstance(value.get("bytes"), bytes):
            return value["bytes"]
        path = str(value.get("path"))
        inside, _, file = path.rpartition("::")  # zip://a.png::the/file.zip
        if file not in self._files or ("://" in inside and not inside.startswith(("zip://", "tar://"))):
            raise UnusableImageError(f"its cell names {path[:200]}, which is no file of the data set")
        with fsspec.open(path, "rb") as opened:
            return opened.read()


def _holds_images(kind: object) -> bool:
    """Whether a column may hold encoded images: as `datasets` marks them, as a dict of bytes and path, or as bytes."""
    is_bytes = getattr(kind, "dtype", "") in ("binary", "large_binary")
    return is_bytes or type(kind).__name__ == "Image" or (isinstance(kind, Mapping) and "bytes" in kind)


class HubReader:
    """Encoded images by their part and row; in ascending order each part is read once."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.row, self.problem = stream, 0, ""
        self.part: int | None = -1
        self._rows: Iterator[dict[str, pyarrow.Scalar]] = iter(())
        self._last: pyarrow.Scalar | None = None

    def __call__(self, file: str, part: int | None, row: int) -> bytes:
        if (part, row + 1) != (self.part, self.row) or self._last is None:
            self._last = self._find(part, row)
        try:
            return self.stream.content(self._last)
        except Exception as error:
            if isinstance(error, LanternError) or not is_damage(error):
                raise
            raise UnusableImageError(first_line(error)) from error

    def _find(self, part: int | None, row: int) -> pyarrow.Scalar:
        """The cell of a row; for one before the last, the part is read again from its start."""
        column, self._last = str(self.stream.image_column), None
        if part != self.part or row < self.row:
            self.part, self.row, self.problem = part, 0, ""
            self._rows = self.stream.read([column], part)
        try:
            for cells in self._rows:
                self.row += 1
                if self.row > row:
                    return cells[column]
        except Exception as error:
            if not is_damage(error):
                raise
            self.problem = first_line(error)
        raise UnusableImageError(f"its part breaks off before it: {self.problem or 'it has fewer rows by now'}")


def is_damage(error: Exception) -> bool:
    """Whether a reader's error is about a damaged file. Errors of the network are of other kinds."""
    return isinstance(error, DAMAGED) or (type(error) is OSError and error.errno is None)  # as Arrow has it


def hub_images(
    name: str, size: int, cache_dir: str, split: str = "train", image_column: str | None = None,
    caption_column: str | None = None, num_classes: int | None = None, validation_share: float = 0.1,
    config: str | None = None, **options: Any,
) -> IndexedImages:  # fmt: skip
    """config: of a data set that has several; options: of `datasets.load_dataset`, such as `data_dir` of
    name="parquet". Images are split into train and validation as those of a folder are. num_classes: of a model that is
    told classes, which a column `label` gives."""
    options = {key: value for key, value in options.items() if value is not None}
    stream = Stream(name, split, image_column, config=config, **options)
    if stream.image_column is None or stream.rows.features is None:
        raise LanternError(f"{name}:{split} has no column of images; name one of the columns with data.image_column=…")
    keys = (*caption_keys(caption_column, num_classes), *(() if caption_column else ("txt",)))
    caption = column_of(stream.columns, keys, "data.caption_column=…", f"{name}:{split}")
    captions = Stream(name, split, None, [caption], config, **options)
    made_of = *stream.fingerprint, stream.image_column, caption
    items = [(name, part, *made_of) for part in range(stream.rows.num_shards)]
    names = getattr(captions.rows.features[caption], "names", None) if num_classes else None
    renamed: dict[str, str] = {}
    if names and set(names) <= synsets().keys():
        numbers = class_numbers(set(names), num_classes)
        renamed = {str(label): str(numbers[synset]) for label, synset in enumerate(names)}
    return IndexedImages(
        name, items, partial(find_samples, captions, caption, renamed), HubReader(stream), size, cache_dir,
        validation_share, num_classes, is_checked=False,
    )  # fmt: skip


def find_samples(stream: Stream, column: str, numbers: Mapping[str, str], item: tuple) -> Iterator[Sample]:
    """Of a part; its images are decoded when used. numbers: of classes, by labels of folders that are ImageNet's."""
    name, part, *_ = item
    with explaining(f"{name} cannot be read", "start again, it goes on", LanternError):
        try:
            with closing(stream.read([column], part)) as rows:
                for row, cells in enumerate(rows):
                    caption, problem = try_caption(cells[column].as_py)
                    yield Sample((name, part, row), f"{name}/{part}-{row}", numbers.get(caption, caption), problem)
        except Exception as error:
            if not is_damage(error):
                raise
            yield Sample((name, part, 0), f"{name}/{part}", problem=f"the part breaks off: {first_line(error)}")
