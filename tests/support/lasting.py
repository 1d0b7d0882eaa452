"""What two equal evaluations have in common: their rows without timings, and their records."""

from pathlib import Path

from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import read_rows

# retimed: an image whose turn a kill cuts short is timed again
TIMES = ("retimed", "latency_s", "end_to_end_s", "other_cores", "ar_over_floor", "revision", "warnings")
TIMES += ("end_to_end_speedup", "end_to_end_speedup_low", "end_to_end_speedup_high")


def lasting(rows: list[dict]) -> list[dict]:
    """Rows without timings."""
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def records(folder: Path) -> dict[tuple, dict]:
    lines = [line for path in folder.rglob(RECORDS) for line in read_rows(path)]
    return {(line["key"], line["part"], line["prompt"], line["copy"]): line for line in lines}
