"""report.html: the page of a sweep or a run, one file that needs no network. It holds JSON, which its scripts draw."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lantern.evaluation.rows import Row, encode, is_baseline, setting_id
from lantern.metrics.profile import Profile
from lantern.reporting.columns import columns_of
from lantern.reporting.labels import label_rows, marks, shared_settings
from lantern.reporting.page.commands import commands
from lantern.reporting.page.pictures import same_prompt_pictures
from lantern.reporting.page.protocol import protocol
from lantern.reporting.quality_budget import Budget, Choice
from lantern.runtime.files import replace_text

PARTS = Path(__file__).parent
PLAIN_NOISE = (
    "shared_noise",
    "gaussian_shared",
    "none",
)  # verifications by plain decoding's noise; none: a loop's
SCRIPTS = ("core", "table", "pareto", "compare", "charts", "profile", "tree", "protocol")


def write_page(
    path: Path, title: str, rows: Sequence[Row], points: Sequence[Path], profiles: Mapping[str, Profile],
    best: Choice | None = None, budget: Budget | None = None,
) -> None:  # fmt: skip
    """points: the folders of the rows, for pictures and provenance; profiles: by setting id; best: the one of the rows
    that is chosen by the budget."""
    chosen = best and budget and {"row": [row is best.row for row in rows].index(True), "budget": budget.told(rows)}
    content = encode(page_content(title, rows, points, profiles) | {"best": chosen})
    page = (PARTS / "template.html").read_text(encoding="utf-8")
    script = "\n".join((PARTS / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    fills = {
        "title": html.escape(title), "style": (PARTS / "style.css").read_text(encoding="utf-8"), "script": script,
        "content": content.replace("<", "\\u003c"),  # a prompt must not end the script element
    }  # fmt: skip
    before, *slots = page.split("{{")
    pieces = [before] + [fills[name] + after for name, after in (slot.split("}}", 1) for slot in slots)]
    replace_text(path, "".join(pieces))


def page_content(
    title: str, rows: Sequence[Row], points: Sequence[Path], profiles: Mapping[str, Profile]
) -> dict[str, object]:
    """The JSON that the scripts read."""
    labels, settings, known = label_rows(rows), [setting_id(row) for row in rows], commands(points)
    listed = [
        {
            "label": label, "values": row, "baseline": is_baseline(row), "profile": profiles.get(setting),
            "marks": _marks(row), "command": known.get(setting),
            "noise": _noise(row),
        }
        for label, row, setting in zip(labels, rows, settings, strict=True)
    ]  # fmt: skip
    return {
        "title": title,
        "note": shared_settings(rows),
        "rows": listed,
        "columns": [asdict(column) for column in columns_of(rows)],
        "protocol": protocol(points, rows, labels),
        **same_prompt_pictures(points, settings),
    }


def _noise(row: Row) -> str | None:
    """What decides a row's picks beside its method: rows that share it differ by their methods alone. None for a
    verification that draws in another way than plain decoding."""
    if not is_baseline(row) and row.get("verification") not in PLAIN_NOISE:
        return None
    return "none" if row.get("temperature") == 0 else f"seed {row.get('seed')}"


def _marks(row: Row) -> str:
    """A setting's marks in a line; none for plain decoding."""
    known, verdict = marks(row), row.get("within_budget")
    budget = [f"within budget: {verdict}"] if verdict and known["law"] == "lossy" else []
    return "" if is_baseline(row) else ", ".join([known["law"], known["drafter"], *budget])
