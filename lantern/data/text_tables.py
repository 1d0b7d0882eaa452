"""Texts and tables as others wrote them: their encodings, and the rows of .jsonl, .json, .csv, .tsv and .parquet files
as dicts. A row that cannot be read is a problem of its own."""

import csv
import io
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lantern.errors import LanternError, first_line

TABLES = (".jsonl", ".csv", ".parquet")
SHOWN = 80  # letters of a row that is no record
LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines also splits at rarer characters
UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Record(NamedTuple):
    name: str  # file and line or row
    values: dict[str, Any]
    problem: str = ""


def decode_text(content: bytes) -> str:
    """UTF-8, or UTF-16 where a byte order mark says so. Other bytes become lone surrogates, which is_text finds."""
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        with suppress(UnicodeDecodeError):
            return content.decode("utf-16")
    return content.decode("utf-8-sig", errors="surrogateescape")


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogate."""
    return text.isascii() or re.search("[\ud800-\udfff]", text) is None


def printable(text: str) -> str:
    """The text in one line, without what a terminal would obey or could not show."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key that sorts names by the numbers in them: 2.png before 10.png."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)], name


def read_records(place: Path | str) -> Iterator[Record]:
    """The rows of a table, a file or the address of one, by its suffix; blank lines are skipped."""
    import fsspec

    try:
        read = READERS[Path(place).suffix.lower()]
        with open(place, "rb") if isinstance(place, Path) else fsspec.open(place, "rb") as file:
            yield from read(file, str(place))
    except (OSError, ValueError, csv.Error) as error:  # Arrow's are kinds of these
        yield Record(str(place), {}, f"not readable: {first_line(error.__cause__ or error)}")


def _read_jsonl(file: BinaryIO, place: str) -> Iterator[Record]:
    for number, line in enumerate(LINE_END.split(decode_text(file.read())), start=1):
        if line.strip():
            name, problem = f"{place} line {number}", f"it is {printable(line[:SHOWN])!r}, no JSON object"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):  # of brackets and digits without end, among others
                record = None
            yield Record(name, record) if isinstance(record, dict) else Record(name, {}, problem)


def _read_json(file: BinaryIO, place: str) -> Iterator[Record]:
    """A list of records, or of prompts."""
    found = json.loads(decode_text(file.read()))
    for number, value in enumerate(found if isinstance(found, list) else [found], start=1):
        values = {"prompt": value} if isinstance(value, str) else value
        problem = "" if isinstance(values, dict) else f"it is {printable(str(value)[:SHOWN])}, no record or text"
        yield Record(f"{place} item {number}", {} if problem else values, problem)


def _read_csv(file: BinaryIO, place: str, delimiter: str = ",") -> Iterator[Record]:
    text, quoting = decode_text(file.read()), csv.QUOTE_MINIMAL
    if delimiter == "\t":  # between tabs most write quotes as they are: then some cell is none of a quoting table
        try:
            _ = [*csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)]
        except csv.Error:
            quoting = csv.QUOTE_NONE
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    for row in rows:
        more = ", ".join(row.pop(None, []))  # type: ignore[call-overload]
        problem = f"it has more fields than the header: {printable(more[:SHOWN])}; quote a text with {delimiter!r}"
        is_whole = not more.strip(", ")
        yield Record(f"{place} line {rows.line_num}", row if is_whole else {}, "" if is_whole else problem)


def _read_parquet(file: BinaryIO, place: str) -> Iterator[Record]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        rows = (batch.slice(row, 1) for batch in opened.iter_batches() for row in range(batch.num_rows))
        for number, row in enumerate(rows):
            try:
                yield Record(f"{place} row {number}", row.to_pylist()[0])
            except UnicodeDecodeError as error:  # no text: other rows are read
                yield Record(f"{place} row {number}", {}, str(error))


READERS = {
    ".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv, ".tsv": partial(_read_csv, delimiter="\t"),
    ".parquet": _read_parquet,
}  # fmt: skip


def column_of(names: Sequence[str], wanted: Sequence[str], setting: str, source: str) -> str:
    """The first of the wanted columns that is among `names`; setting: which names another."""
    if found := next((name for name in wanted if name in names), None):
        return found
    known = ", ".join(printable(str(name)) for name in names)
    raise LanternError(f"{source} has no column {' or '.join(wanted)}, only {known}; name one with {setting}")
