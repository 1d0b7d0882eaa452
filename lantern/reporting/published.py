"""Figures of the papers beside ours, where model, temperature and the settings that they state are equal; `source` says
what they do not state."""

from collections.abc import Mapping, Sequence

from lantern.evaluation.rows import Row

FIGURES = ("tokens_per_step", "speedup", "frechet", "source")


def published_keys(row: Row, published: Mapping[str, Sequence[Row] | None]) -> Row:
    """published: by method, entries of FIGURES and of the row keys that must be equal; the first that fits counts."""
    for entry in published.get(str(row.get("method"))) or ():
        if all(row.get(key) == value for key, value in entry.items() if key not in FIGURES):
            return {f"published_{name}": value for name, value in entry.items() if name in FIGURES}
    return {}
