"""The warnings of result rows as lines below their table, each once however many rows have it."""

import re
from collections.abc import Sequence

from lantern.evaluation.rows import WARNING_BREAK, Row
from lantern.reporting.labels import label_rows

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def warning_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each warning, with the labels of its rows. Sentences that differ in their numbers alone are one
    warning, in which a number is the range of those found."""
    kinds: dict[str, list[tuple[str, str]]] = {}  # the sentence without its numbers -> its rows' labels and sentences
    for label, row in zip(label_rows(rows), rows, strict=True):
        for sentence in filter(None, (row.get("warnings") or "").split(WARNING_BREAK)):
            kinds.setdefault(NUMBER.sub("#", sentence), []).append((label, sentence))
    lines = []
    for found in kinds.values():
        labels, sentences = zip(*found, strict=True)
        where = "all rows" if len(labels) == len(rows) > 1 else ", ".join(labels)
        lines.append(f"warning ({where}): {_with_ranges(sentences)}")
    return lines


def _with_ranges(sentences: Sequence[str]) -> str:
    """Sentences that differ in numbers alone, as one."""
    texts = NUMBER.split(sentences[0])
    columns = zip(*(NUMBER.findall(sentence) for sentence in sentences), strict=True)
    return texts[0] + "".join(_range(column) + text for column, text in zip(columns, texts[1:], strict=True))


def _range(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if low == high else f"{low} to {high}"
