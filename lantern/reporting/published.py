"""Figures of the papers beside ours, where the model and the temperature are the published ones."""

from collections.abc import Mapping

from lantern.evaluation.rows import Row


def published_keys(row: Row, published: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Row:
    """published: by model, then temperature, figures under the names of row keys, and their source."""
    figures = published.get(str(row["model"]), {}).get(f"t{row['temperature']:g}", {})
    return {f"published_{name}": value for name, value in figures.items()}
