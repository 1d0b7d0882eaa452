"""Figures of the papers beside ours, where the model and the temperature are the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lantern.evaluation.evaluate import Measurement
from lantern.evaluation.rows import Row


def published_keys(row: Row, published: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Row:
    """published: by model, then temperature, figures under the names of row keys, and their source."""
    figures = published.get(str(row["model"]), {}).get(f"t{row['temperature']:g}", {})
    return {f"published_{name}": value for name, value in figures.items()}


def with_published(measurements: Sequence[Measurement], published: Mapping) -> list[Measurement]:
    """The measurements, the method's row with what was published for it."""
    return with_keys(measurements, published_keys(measurements[-1].row, published) if measurements else {})


def with_keys(measurements: Sequence[Measurement], keys: Row) -> list[Measurement]:
    """The measurements, the method's row, which is the last, with more keys."""
    return [*measurements[:-1], *(replace(last, row=last.row | keys) for last in measurements[-1:])]
