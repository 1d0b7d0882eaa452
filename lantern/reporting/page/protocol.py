"""Provenance and settings of a sweep's runs: what all share once, what differs run by run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.evaluation.rows import Row
from lantern.identity import PROVENANCE
from lantern.reporting.columns import is_setting
from lantern.runtime.files import read_object

HIDDEN = ("config.hydra", "config.paths", "config.sweep")  # paths on the disk of the run


def protocol(points: Sequence[Path], rows: Sequence[Row], labels: Sequence[str]) -> dict[str, object]:
    """{"runs", "settings"}: of the points' provenance, and of all in the rows besides numbers, each
    {"shared": [[key, value]], "differing": {"keys", "lines": [[name, value …]]}}."""
    runs = {point.name: _flat(read_object(point / PROVENANCE)) for point in points}
    settings = {label: _flat(_words(row)) for label, row in zip(labels, rows, strict=True)}
    return {"runs": _split(runs), "settings": _split(settings)}


def _words(row: Row) -> Row:
    return {key: row[key] for key in row if is_setting(key) or isinstance(row[key], str | bool | Mapping | list)}


def _flat(value: object, name: str = "") -> dict[str, str]:
    """Nested values by dotted names, as text."""
    if name.startswith(HIDDEN):
        return {}
    if isinstance(value, Mapping):
        parts = [_flat(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()]
        return {key: text for part in parts for key, text in part.items()}
    return {name: _text(value)}


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    return "–" if value is None else str(value)


def _split(records: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    keys = list(dict.fromkeys(key for record in records.values() for key in record))
    values = {key: [record.get(key, "–") for record in records.values()] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    lines = [[name, *(values[key][i] for key in differing)] for i, name in enumerate(records)]
    return {
        "shared": [[key, values[key][0]] for key in keys if key not in differing],
        "differing": {"keys": differing, "lines": lines if differing else []},
    }
