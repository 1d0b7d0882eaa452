"""Captioned images in parquet files, as the Hub keeps them: a column of encoded images (bytes, or {"bytes", "path"})
and a column of captions. Row groups are read in place; nothing is converted, and no path in a cell is opened."""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow
import pyarrow.parquet

from lantern.data.image_io import caption_keys, try_caption
from lantern.data.splits import IndexedImages, find_files, index_image, index_row, is_readable
from lantern.data.text_tables import column_of
from lantern.errors import LanternError, first_line

SEPARATOR = "\0"  # between a file and its column in the index


def parquet_images(
    files: str, size: int, cache_dir: str, image_column: str = "image", caption_column: str | None = None,
    validation_share: float = 0.1, num_workers: int = 2, num_classes: int | None = None,
) -> IndexedImages:  # fmt: skip
    """files: a folder of .parquet files or a pattern; caption_column: else caption, text or prompt; num_classes: of a
    model that is told classes, which a column `label` may give."""
    files = os.path.expanduser(str(files))
    found = find_files(files, ".parquet")
    if not found:
        raise LanternError(f"no parquet files at {files}; give a folder or a pattern with data.files=...")
    keys = caption_keys(caption_column)
    keys = ("label", *keys) if num_classes and not caption_column else keys
    items = [(file, image_column, keys, size, num_classes) for file in found]
    return IndexedImages(files, items, index_files, read_cell, size, cache_dir, validation_share, num_workers)


def index_files(items: list[tuple[str, str, Sequence[str], int, int | None]]) -> Iterator[dict[str, Any]]:
    """Rows of the index of each (file, image column, possible caption columns, image size, number of classes)."""
    for file, *item in items:
        try:
            yield from _index_file(file, *item)
        except (pyarrow.ArrowException, OSError, LanternError) as error:
            yield index_row(file, file, f"not readable as parquet: {first_line(error)}")


def _index_file(
    file: str, image_column: str, keys: Sequence[str], size: int, num_classes: int | None
) -> Iterator[dict[str, Any]]:  # fmt: skip
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
            name = f"{file}#{group}-{row}"  # its part below the source decides the split
            caption, problem = try_caption(cell.as_py, num_classes)
            yield index_image((location, group, row), name, caption, problem, size, read_cell)


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
