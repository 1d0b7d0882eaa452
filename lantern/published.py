"""Figures of the papers beside ours, where the model and the temperature are the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lantern.evaluation import Measurement
from lantern.results import Row


def published_keys(row: Row, published: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Row:
    """published: by model, then temperature, figures under the names of row keys, and their source."""
    figures = published.get(str(row["model"]), {}).get(f"t{row['temperature']:g}", {})
    return {f"published_{name}": value for name, value in figures.items()}


def with_published(measurements: Sequence[Measurement], published: Mapping) -> list[Measurement]:
    """The measurements, the method's row with what was published for it."""
    if not measurements or not published:
        return list(measurements)
    *before, last = measurements
    return [*before, replace(last, row=last.row | published_keys(last.row, published))]
