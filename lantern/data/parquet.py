"""Captioned images in parquet files, as the Hub keeps them: a column of encoded images (bytes, or {"bytes", "path"})
and a column of captions. Row groups are read in place; nothing is converted, and no path in a cell is opened."""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow
import pyarrow.parquet

from lantern.data.image_io import caption_keys, try_caption
from lantern.data.splits import IndexedImages, Sample, find_files, is_readable
from lantern.data.text_tables import column_of
from lantern.errors import LanternError, first_line

SEPARATOR = "\0"  # between a file and its column in the index


def parquet_images(
    files: str, size: int, cache_dir: str, image_column: str = "image", caption_column: str | None = None,
    validation_share: float = 0.1, num_classes: int | None = None,
) -> IndexedImages:  # fmt: skip
    """files: a folder of .parquet files or a pattern; caption_column: else caption, text or prompt; num_classes: of a
    model that is told classes, which a column `label` may give."""
    files = os.path.expanduser(str(files))
    found = find_files(files, ".parquet")
    if not found:
        raise LanternError(f"no parquet files at {files}; give a folder or a pattern with data.files=...")
    items = [(file, image_column, caption_keys(caption_column, num_classes)) for file in found]
    return IndexedImages(files, items, find_samples, read_cell, size, cache_dir, validation_share, num_classes)


def find_samples(item: tuple[str, str, Sequence[str]]) -> Iterator[Sample]:
    """Of a file, with its image column and possible caption columns."""
    try:
        yield from _find_samples(*item)
    except (pyarrow.ArrowException, OSError, LanternError) as error:
        yield Sample((item[0], 0, 0), item[0], problem=f"not readable as parquet: {first_line(error)}")


def _find_samples(file: str, image_column: str, keys: Sequence[str]) -> Iterator[Sample]:
    if not is_readable(file):  # opening a named pipe would wait for ever
        raise LanternError("it is no file, or may not be read")
    with pyarrow.parquet.ParquetFile(file) as opened:
        names, groups = opened.schema_arrow.names, opened.num_row_groups
        image_column = column_of(names, [image_column], "data.image_column=…", "it")
        caption_column = column_of(names, keys, "data.caption_column=…", "it")
        captions = [opened.read_row_group(g, [caption_column])[caption_column] for g in range(groups)]
    location = f"{file}{SEPARATOR}{image_column}"
    for group, cells in enumerate(captions):
        for row, cell in enumerate(cells):
            yield Sample((location, group, row), f"{file}#{group}-{row}", *try_caption(cell.as_py))


def read_cell(location: str, group: int, row: int) -> bytes:
    """The encoded image at (file + SEPARATOR + column, row group, row)."""
    cell = _column(*location.split(SEPARATOR), group)[row].as_py()
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(content, bytes):
        raise LanternError("its cell holds no image bytes, and a path in it is not opened; store the encoded image")
    return content


@lru_cache(maxsize=2)  # consecutive rows share a row group
def _column(file: str, column: str, group: int) -> pyarrow.ChunkedArray:
    with pyarrow.parquet.ParquetFile(file) as opened:
        return opened.read_row_group(group, [column])[column]
