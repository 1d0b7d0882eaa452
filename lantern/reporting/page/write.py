"""report.html: the page of a sweep or a run, one file that needs no network. It holds JSON, which its scripts draw."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lantern.evaluation.rows import Row, encode, is_baseline, read_summary, setting_id
from lantern.metrics.profile import Profile
from lantern.reporting.page.pictures import same_prompt_pictures
from lantern.reporting.ranking import Budget, Choice, is_proven_faster
from lantern.reporting.table import columns_of, is_setting, label_rows, marks, shared_settings, warning_lines
from lantern.runtime.files import replace_text
from lantern.runtime.overrides import leaves
from lantern.runtime.provenance import read_provenance

PAGE_FOLDER = Path(__file__).parent
PLAIN_NOISE = ("shared_noise", "gaussian_shared", "none")  # use plain decoding's noise; none: decoders with own loop
SCRIPTS = ("core", "table", "pareto", "compare", "charts", "profile", "tree", "protocol")


def write_page(
    path: Path, title: str, rows: Sequence[Row], points: Sequence[Path], profiles: Mapping[str, Profile],
    best: Choice | None = None, budget: Budget | None = None,
) -> None:  # fmt: skip
    """points: folders of the rows, for pictures and provenance; profiles: by setting id; best: chosen by the budget."""
    told = None
    if best and budget:
        place = [row is best.row for row in rows].index(True)
        told = {"row": place, "line": best.describe(label_rows(rows)[place]), "budget": budget.describe(rows)}
        told |= {"is_faster": is_proven_faster(rows)}
    content = encode(page_content(path.parent, title, rows, points, profiles) | {"best": told})
    page = (PAGE_FOLDER / "template.html").read_text(encoding="utf-8")
    script = "\n".join((PAGE_FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    fills = {
        "title": html.escape(title), "style": (PAGE_FOLDER / "style.css").read_text(encoding="utf-8"), "script": script,
        "content": content.replace("<", "\\u003c"),  # a prompt must not end the script element
    }  # fmt: skip
    replace_text(path, re.sub(r"{{(\w+)}}", lambda slot: fills[slot[1]], page))


def page_content(
    home: Path, title: str, rows: Sequence[Row], points: Sequence[Path], profiles: Mapping[str, Profile]
) -> dict[str, object]:
    labels, settings, commands_of = label_rows(rows), [setting_id(row) for row in rows], commands(points)
    versions = ", ".join(dict.fromkeys(f"Lantern {row['version']}" for row in rows if row.get("version")))
    listed = []
    for label, row, setting in zip(labels, rows, settings, strict=True):
        known, verdict = marks(row), row.get("within_budget")
        budget = [f"within budget: {verdict}"] if verdict and known["law"] == "lossy" else []
        listed.append({
            "label": label, "values": row, "baseline": is_baseline(row), "profile": profiles.get(setting),
            "marks": "" if is_baseline(row) else ", ".join([known["law"], known["drafter"], *budget]),
            "command": commands_of.get(setting), "noise": _noise(row),
        })  # fmt: skip
    return {
        "title": title,
        "note": f"{shared_settings(rows)} {versions}." if versions else shared_settings(rows),
        "rows": listed,
        "warnings": warning_lines(rows),
        "columns": [asdict(figure) for figure in columns_of(rows)],
        "protocol": protocol(points, rows, labels),
        **same_prompt_pictures(home, points, settings),
    }


def _noise(row: Row) -> str | None:
    """What decides a row's picks beside its method: rows that share it differ by their methods alone. None for a
    verification that draws in another way than plain decoding."""
    if not is_baseline(row) and row.get("verification") not in PLAIN_NOISE:
        return None
    seed = "none" if row.get("temperature") == 0 else f"seed {row.get('seed')}"
    sampled_by = "temperature", "top_k", "top_p", "cfg_scale", "dtype", "target_hash"
    return " ".join([seed, *(f"{key} {row.get(key)}" for key in sampled_by)])


def commands(points: Sequence[Path]) -> dict[str, str]:
    """A command by setting id; of several points that hold a setting, such as plain decoding, the last one's."""
    told = ((point, read_provenance(point).get("command")) for point in points)
    return {setting_id(row): command for point, command in told if command for row in read_summary(point)}


HIDDEN = ("command", "config.hydra", "config.paths", "config.sweep")  # paths on the disk of the run


def protocol(points: Sequence[Path], rows: Sequence[Row], labels: Sequence[str]) -> dict[str, object]:
    """{"runs", "settings"}: of the points' provenance, and of all in the rows besides numbers, each
    {"shared": [[key, value]], "differing": {"keys", "lines": [[name, value …]]}}."""
    runs = {point.name: _flat(read_provenance(point)) for point in points}
    settings = {}
    for label, row in zip(labels, rows, strict=True):
        shown = [key for key in row if is_setting(key) or isinstance(row[key], str | bool | Mapping | list)]
        settings[label] = _flat({key: row[key] for key in shown})
    return {"runs": _split(runs), "settings": _split(settings)}


def _flat(value: object) -> dict[str, str]:
    """Nested values by dotted names, as text."""
    return {name: _text(part) for name, part in leaves(value).items() if not name.startswith(HIDDEN)}


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
