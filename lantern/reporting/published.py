"""Figures of the papers beside ours, where model, temperature and settings are the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lantern.evaluation.evaluate import Measurement
from lantern.evaluation.rows import Row

FIGURES = ("tokens_per_step", "speedup", "frechet", "source")


def published_keys(row: Row, published: Mapping[str, Sequence[Row]]) -> Row:
    """published: by method, entries of FIGURES and of the row keys that must be equal; the first that fits counts."""
    for entry in published.get(str(row.get("method")), ()):
        if all(row.get(key) == value for key, value in entry.items() if key not in FIGURES):
            return {f"published_{name}": value for name, value in entry.items() if name in FIGURES}
    return {}


def with_published(measurements: Sequence[Measurement], published: Mapping[str, Sequence[Row]]) -> list[Measurement]:
    """The measurements, the method's row with what was published for it."""
    return with_keys(measurements, published_keys(measurements[-1].row, published) if measurements else {})


def with_keys(measurements: Sequence[Measurement], keys: Row) -> list[Measurement]:
    """The measurements, the method's row, which is the last, with more keys."""
    return [*measurements[:-1], *(replace(last, row=last.row | keys) for last in measurements[-1:])]
