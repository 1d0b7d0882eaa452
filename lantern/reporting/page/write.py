"""report.html: the page of a sweep or a run, one file that needs no network. It holds JSON, which its scripts draw."""

import html
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from omegaconf import OmegaConf

from lantern.evaluation.rows import Row, encode, is_baseline, read_summary, setting_id
from lantern.identity import PROVENANCE
from lantern.metrics.profile import Profile
from lantern.reporting.page.pictures import same_prompt_pictures
from lantern.reporting.ranking import Budget, Choice, is_proven_faster
from lantern.reporting.table import columns_of, is_setting, label_rows, marks, shared_settings
from lantern.runtime.files import bytes_of, read_object, replace_text
from lantern.runtime.home import config_dir, leaves, program_of

log = logging.getLogger(__name__)
PAGE_FOLDER = Path(__file__).parent
PLAIN_NOISE = ("shared_noise", "gaussian_shared", "none")  # use plain decoding's noise; none: decoders with own loop
SCRIPTS = ("core", "table", "pareto", "compare", "charts", "profile", "tree", "protocol")


def write_page(
    path: Path, title: str, rows: Sequence[Row], points: Sequence[Path], profiles: Mapping[str, Profile],
    best: Choice | None = None, budget: Budget | None = None,
) -> None:  # fmt: skip
    """points: the folders of the rows, for pictures and provenance; profiles: by setting id; best: the one of the rows
    that is chosen by the budget."""
    chosen = best and budget and {"row": [row is best.row for row in rows].index(True), "budget": budget.describe(rows)}
    told = chosen and {**chosen, "is_faster": is_proven_faster(rows)}
    content = encode(page_content(path.parent, title, rows, points, profiles) | {"best": told})
    page = (PAGE_FOLDER / "template.html").read_text(encoding="utf-8")
    script = "\n".join((PAGE_FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    fills = {
        "title": html.escape(title), "style": (PAGE_FOLDER / "style.css").read_text(encoding="utf-8"), "script": script,
        "content": content.replace("<", "\\u003c"),  # a prompt must not end the script element
    }  # fmt: skip
    before, *slots = page.split("{{")
    pieces = [before] + [fills[name] + after for name, after in (slot.split("}}", 1) for slot in slots)]
    replace_text(path, "".join(pieces))


def page_content(
    home: Path, title: str, rows: Sequence[Row], points: Sequence[Path], profiles: Mapping[str, Profile]
) -> dict[str, object]:
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
        "note": f"{shared_settings(rows)} {_version(rows)}",
        "rows": listed,
        "columns": [asdict(figure) for figure in columns_of(rows)],
        "protocol": protocol(points, rows, labels),
        **same_prompt_pictures(home, points, settings),
    }


def _version(rows: Sequence[Row]) -> str:
    """Which Lantern has measured the rows."""
    versions = dict.fromkeys(str(row["version"]) for row in rows if row.get("version"))
    return f"Lantern {', '.join(versions)}." if versions else ""


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


def commands(points: Sequence[Path]) -> dict[str, str]:
    """A command by setting id, of the points whose overrides are recorded; where several points hold a setting, as all
    points of a sweep hold plain decoding, the last one's."""
    found: dict[str, str] = {}
    for point in points:
        command = command_of(point)
        found |= {setting_id(row): command for row in read_summary(point) if command}
    return found


def command_of(folder: Path) -> str | None:
    """`python evaluate.py …`, or the command of a wheel, as a shell reads it, for one run; None where Hydra recorded
    nothing or, with a warning, something else."""
    overrides, record = (folder / ".hydra" / name for name in ("overrides.yaml", "hydra.yaml"))
    try:
        texts = [bytes_of(path, folder).decode() for path in (record, overrides)]
        mode, runtime = (OmegaConf.select(OmegaConf.create(texts[0]), f"hydra.{key}") for key in ("mode", "runtime"))
        single = ["hydra.mode=RUN"] if mode == "MULTIRUN" else []  # a point alone, where a preset sweeps
        given = OmegaConf.to_container(OmegaConf.create(texts[1]), resolve=False)  # ${…} is the run's to resolve
        return shlex.join([*program_of("evaluate.py")[1], *config_dir(runtime), *map(str, given), *single])
    except FileNotFoundError:
        return None
    except Exception as error:  # of yaml, of OmegaConf, and of keys that are missing
        log.warning("%s is damaged: its command is not shown (%s)", record.parent, type(error).__name__)
        return None


HIDDEN = ("config.hydra", "config.paths", "config.sweep")  # paths on the disk of the run


def protocol(points: Sequence[Path], rows: Sequence[Row], labels: Sequence[str]) -> dict[str, object]:
    """{"runs", "settings"}: of the points' provenance, and of all in the rows besides numbers, each
    {"shared": [[key, value]], "differing": {"keys", "lines": [[name, value …]]}}."""
    runs = {point.name: _flat(read_object(point / PROVENANCE)) for point in points}
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
