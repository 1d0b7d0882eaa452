"""Result rows as tables: aligned text for the terminal, and a csv."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from lantern.evaluation.rows import Row, is_baseline
from lantern.reporting.common_baseline import OVER_FASTEST
from lantern.reporting.labels import label_rows, marks
from lantern.runtime.files import replace_text

COLUMNS = {
    OVER_FASTEST: "over fastest AR",
    "speedup": "speed-up", "tokens_per_step": "tokens/step", "target_forwards": "passes",
    "drafter_forwards": "drafter's", "latency_s": "s/image", "draft_ms": "draft ms", "verify_ms": "verify ms",
    "accept_ms": "accept ms", "output_tv": "output TV", "code_distance": "code dist.",
    "frechet": "Fréchet",
    "frechet_diff": "less AR's", "kernel": "kernel", "precision": "prec.",
    "recall": "recall",
}  # fmt: skip
JUDGED = ("_accuracy", "_score")  # ends of the keys of metrics that have a column
BOUNDED = (OVER_FASTEST, "speedup", "output_tv", "frechet", "frechet_diff")


def format_table(rows: Sequence[Row]) -> str:
    """The rows as an aligned text table: the fixed columns that hold something, then every other quality metric."""
    headers, lines = _cells(rows)
    widths = [max(len(line[i]) for line in [headers, *lines]) for i in range(len(headers))]
    aligned = [_align(line, widths) for line in [headers, *lines]]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    label, *numbers = line
    return "  ".join([label.ljust(widths[0]), *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True))])


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    judged = dict.fromkeys(key for row in rows for key in row if key.endswith(JUDGED))
    keys = [key for key in [*COLUMNS, *judged] if any(row.get(key) is not None for row in rows)]
    headers = [COLUMNS.get(key, key.removesuffix(JUDGED[0]).replace("_", " ")) for key in keys]
    differing = _differing_marks(rows)
    lines = [
        [label, *(marks(row)[name] for name in differing), *(format_value(row, key) for key in keys)]
        for label, row in zip(label_rows(rows), rows, strict=True)
    ]
    return ["setting", *differing, *headers], lines


def _differing_marks(rows: Sequence[Row]) -> list[str]:
    """The marks in which methods differ."""
    words = [marks(row) for row in rows if not is_baseline(row)] or [marks(row) for row in rows]
    return [name for name in words[0] if len({line[name] for line in words}) > 1]


def format_value(row: Row, key: str) -> str:
    """A number with its 95 % bounds, if the key is a bounded one; "-" for none."""
    value = row.get(key)
    if value is None:
        return "-"
    bounds = bounds_of(row, key) if key in BOUNDED else ""
    return digits_of(value)(value) + bounds


def bounds_of(row: Row, key: str) -> str:
    """The bounds of a figure as they stand behind it: " [low, high]"; nothing without any."""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return ""
    text = digits_of(row[key])
    return f" [{text(low)}, {text(high)}]"


def digits_of(value: float) -> Callable[[float], str]:
    """How a figure and its bounds are written: two decimals, three digits below 0.1."""
    return "{:.3g}".format if abs(value) < 0.1 else "{:.2f}".format


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    """All rows, every key of any of them a column."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(path, text.getvalue())
