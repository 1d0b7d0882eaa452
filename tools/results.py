"""python -m tools.results [again] [table …]: measures the rows of docs/tables.yaml that docs/rows lacks, each by a
command of its own, and writes the tables of the docs between their markers. A stopped run goes on where it stopped. A
row whose command, preset or weights have changed is measured again; rows of earlier code are named. again: all timed
rows of the tables, in one go."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

from omegaconf import OmegaConf

from lantern.cli.composing import composed
from lantern.cli.run_setting import run_setting
from lantern.data.prompts import load_prompts
from lantern.errors import LanternError
from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.progress import EvaluationBar, open_bar
from lantern.evaluation.rows import SUMMARY, WARNING_BREAK, Row, encode, is_baseline, read_rows
from lantern.evaluation.run_folder import FINISHED
from lantern.evaluation.sides import Side, time_in_turn
from lantern.evaluation.speed import speed_warnings
from lantern.figures import FIGURES, figures
from lantern.identity import DECODING, PACKAGE, PLAIN_DECODING, bytes_hash, code_of, digest
from lantern.models.checkpoints import local_hashes
from lantern.pipeline import Pipeline
from lantern.reporting.table import format_value
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.home import CHECKOUT, CONFIG_FOLDER, program_of
from lantern.runtime.overrides import override
from tools.markdown import table_lines, write_block

Run = Callable[[Sequence[str], Path], Row]  # settings of evaluate.py, run folder -> its row and where it came from
Now = Callable[[Sequence[str]], Mapping[str, str]]  # settings -> the hashes that a row measured today would have
Asked = tuple[Sequence[str], str, Path]  # settings, the model's name, run folder
Time = Callable[[Sequence[Asked]], Sequence[Row]]  # times them -> the row of each, uncounted
ORIGIN = ("machine", "date", "revision", "plain_verify_ms", "plain_forwards")
WRITTEN = ("preset", "protocol", "weights", "code")  # hashes of what a row was made from
# of lantern/: what decodes, and what times and judges it
DECIDES = (
    "acceptance", "continuous", "data", "drafters", "engine", "evaluation", "metrics", "models", "trees", "tuning",
    "runtime", "scenes", "verification", "decoding.py", "hashing.py", "identity.py", "noise.py", "pipeline.py",
    "row_parallel.py", "sampling.py", "types.py",
)  # fmt: skip
SPREAD = 1.15  # of plain decoding's times within a table, above which the table says so
GLOSSARY = "glossary"  # in place of tables: the words of lantern/figures.py alone
AGAIN = "again"  # before tables
TOGETHER = 10  # rows that are timed in turn with one plain decoding, at most: a quarter of a minute an image
BEFORE = "before.json"  # in a run folder: the kept row
BOARD = ("headline", "field", "rest", "recent")  # tables of presets; of two rows of one, the first table's counts
SUFFIXES = {  # of a method's speed-up by another protocol than the headline's: a table, settings besides, a figure
    "-compiled": ("compiled", (), "speedup_over_compiled"),
    "-emoji": ("worlds", ("model=emoji",), "speedup"),
}
RECORDED = (  # of a result row, besides its figures
    "model", "drafter", "tree", "verification", "acceptance", "lossless", "dtype", "threads", "compile", "version",
    "output_tv_estimator", "k", "delta", "lam", "drafter_hash", "target_hash", "fingerprint", "law", "warnings",
)  # fmt: skip


def _round(row: Row) -> str:
    """Its parts, or the sum alone where they have no times: on a GPU."""
    parts = [row.get(part) for part in ("draft_ms", "verify_ms", "accept_ms")]
    return " + ".join(f"{ms:.1f}" for ms in ([row["round_ms"]] if None in parts else parts))


def _plain_ms(row: Row) -> str:
    """Plain decoding's milliseconds a token, prefill included, in the minutes in which the row was timed."""
    if not row.get("baseline_latency_s"):
        return "-"
    return f"{1000 * row['baseline_latency_s'] / (row['plain_forwards'] + 1):.2f}"


def _times_one_node(row: Row) -> str:
    """Time of the target's pass over a round's nodes, divided by that of plain decoding's pass over one node: the part
    of a round's cost that differs most between machines."""
    known = row.get("plain_verify_ms") and row.get("verify_ms")  # on a GPU neither is
    return f"{row['verify_ms'] / row['plain_verify_ms']:.1f}" if known else "-"


def prompts_of(row: Row) -> str:
    """How many prompts are behind a row's figures: those that were timed and, where others, those that were counted."""
    given = dict(setting.split("=", 1) for setting in row["settings"] if "=" in setting)
    timed, made = (given.get(name, "0") for name in ("speed.num_prompts", "quality.num_images"))
    return f"{timed} of {made}" if int(timed) and int(made) else timed if int(timed) else made


OF_SEVERAL: Mapping[str, tuple[str, Callable[[Row], str]]] = {  # columns that are no figure of their own
    "plain_ms": ("AR, ms a token", _plain_ms),
    "pass": ("pass / AR's", _times_one_node),
    "round": ("round, ms", _round),
    "prompts": ("prompts", prompts_of),
    "lossless": ("lossless", lambda row: "yes" if row["lossless"] else "no"),
}


def title_of(column: str) -> str:
    return OF_SEVERAL[column][0] if column in OF_SEVERAL else FIGURES[column].title


def cell_of(row: Row, column: str) -> str:
    return OF_SEVERAL[column][1](row) if column in OF_SEVERAL else format_value(row, column)


@dataclass(frozen=True)
class Table:
    """A table of the docs: its rows by label, each with its settings beside the shared ones."""

    name: str
    pages: Sequence[str]  # paths from docs/
    shared: Sequence[str]
    columns: Sequence[str]
    rows: Mapping[str, Sequence[str]]

    def settings(self, label: str) -> list[str]:
        """Of evaluate.py."""
        return [*self.rows[label], *self.shared]

    def home(self, label: str, folder: Path) -> Path:
        """The run folder of a row."""
        return folder / self.name / digest(repr(self.settings(label)))

    def kept(self, rows: Sequence[Row]) -> dict[str, Row]:
        """The rows to show, by label: the last one of today's command, whichever table it was measured for."""
        found = {tuple(sorted(row["settings"])): row for row in rows}
        asked = {label: tuple(sorted(self.settings(label))) for label in self.rows}
        return {label: found[settings] for label, settings in asked.items() if settings in found}


def load_tables(docs: Path) -> dict[str, Table]:
    """The tables of docs/tables.yaml, by name; LanternError for a column that is unknown."""
    listed = OmegaConf.to_container(OmegaConf.load(docs / "tables.yaml"))
    tables = {name: Table(name, **values) for name, values in listed.items()}
    for table in tables.values():
        for column in table.columns:
            if column not in {**OF_SEVERAL, **FIGURES}:
                raise LanternError(f"docs/tables.yaml: column {column} is unknown; give a figure of lantern/figures.py")
    return tables


def rows_of(table: Table, docs: Path) -> list[Row]:
    """All kept rows, those that were measured for this table last."""
    own = docs / "rows" / f"{table.name}.jsonl"
    paths = sorted(own.parent.glob("*.jsonl"), key=lambda path: (path == own, path))
    return [row for path in paths for row in read_rows(path)]


def hashes_of(settings: Sequence[str]) -> dict[str, str]:
    """What a row of these settings is made from today: `preset`, the composed settings that decide what is decoded;
    `protocol`, those of timing and judging, and the texts of the prompts; `weights`, the contents of all that they
    name; `code`, of what decodes, times and judges."""
    config = composed(CONFIG_FOLDER, "evaluate", settings)
    given, read = OmegaConf.to_container(config), OmegaConf.to_container(config, resolve=True)
    decided = _with_choices(given, read)
    preset = {name: decided[name] for name in (*DECODING, "prompts", "split", "seed", "output_tv")}
    protocol = {name: given[name] for name in ("speed", "quality", "batch_size")}
    protocol |= {"metrics": _without_modules(given.get("metrics", {}))} if config.quality.num_images else {}
    texts = load_prompts(config.prompts, CHECKOUT / "data" / "prompts")
    weights = local_hashes({name: read.get(name) for name in ("model", "drafter", "metrics")})
    return {
        "preset": digest(_without_modules(preset)),
        "protocol": digest([protocol, texts]),
        "weights": digest(sorted(weights.items())),
        "code": code_now(),
    }


@cache
def code_now() -> str:
    files = [path for name in DECIDES for path in sorted((PACKAGE / name).rglob("*.py")) or [PACKAGE / name]]
    return bytes_hash(code_of(path.read_text("utf-8")).encode() for path in files)


def _with_choices(given: Any, read: Any) -> Any:
    """Settings as given, with paths still open, but for those that a model's yaml may choose, which are as read."""
    if isinstance(given, Mapping):
        return {key: _with_choices(value, read[key]) for key, value in given.items()}
    return read if str(given).startswith("${oc.select:") else given


def _without_modules(settings: object) -> object:
    """Settings with each class by its own name: a module that is moved changes no figure."""
    if isinstance(settings, Mapping):
        return {
            key: str(value).rsplit(".", 1)[-1] if key == "_target_" else _without_modules(value)
            for key, value in settings.items()
        }
    return [_without_modules(value) for value in settings] if isinstance(settings, list) else settings


def stale(row: Row | None, now: Mapping[str, str]) -> list[str]:
    """Which of WRITTEN have changed since a row was measured; all where there is none. Rows that have none of them are
    of earlier code; those of 2026-11-27 and before have no protocol."""
    if row is None:
        return [*WRITTEN]
    return [name for name in WRITTEN if row.get(name, "" if name == "code" else now[name]) != now[name]]


def measure(table: Table, docs: Path, folder: Path, run: Run, now: Now = hashes_of) -> None:
    """Measures the rows that are missing or of another preset or other weights; each is kept, and the page written,
    before the next is begun. A run that was stopped goes on; one that had finished is removed, since its row is to be
    measured again. Names the rows of earlier code."""
    for label in table.rows:
        settings, home = table.settings(label), table.home(label, folder)
        changed = stale(table.kept(rows_of(table, docs)).get(label), hashes := now(settings))
        if changed == ["code"]:
            print(f"{table.name}, {label}: of earlier code; delete it from docs/rows to measure it again", flush=True)
        elif changed:
            if (home / FINISHED).is_file():
                shutil.rmtree(home)
            keep(table, docs, label, run(settings, home) | hashes)


def keep(table: Table, docs: Path, label: str, found: Row) -> None:
    """Adds a row to those of its table, in place of one of its command, and writes the table's pages."""
    keys = (key for figure in figures(kept=True) for key in figure.keys)  # with bounds
    values = {key: found.get(key) for key in (*ORIGIN, *RECORDED, *keys)}
    values |= {key: found[key] for key in (*WRITTEN, "together") if key in found}
    path = docs / "rows" / f"{table.name}.jsonl"
    row = {"label": label, "settings": table.settings(label), **values}
    rows = {tuple(sorted(one["settings"])): one for one in [*(read_rows(path) if path.is_file() else []), row]}
    replace_text(path, "".join(f"{encode(one)}\n" for one in rows.values()))
    write_pages(table, docs)


@dataclass(frozen=True)
class Again:
    """A kept row that is measured again, in its run folder."""

    table: Table
    label: str
    home: Path
    before: Row
    hashes: Mapping[str, str]  # that it would have if it were measured now

    @property
    def settings(self) -> list[str]:
        return self.table.settings(self.label)

    def now(self, docs: Path) -> Row:
        return self.table.kept(rows_of(self.table, docs))[self.label]


def measure_again(
    tables: Sequence[Table], docs: Path, folder: Path, run: Run, time: Time, now: Now = hashes_of
) -> list[Again]:  # fmt: skip
    """Measures the timed rows of tables again: first the times of all, each kept with the counts of before, then what
    is counted, which needs no quiet machine: rows whose counts are of other code, by the row's command, which finds its
    times on record. Until then they are named as of earlier code. A stopped run goes on by the kept rows that `folder`
    remembers; who removes it begins anew. Returns all these rows."""
    every, due = [], []
    for table in tables:
        path = docs / "rows" / f"{table.name}.jsonl"
        for label, row in table.kept(read_rows(path) if path.is_file() else []).items():
            if row.get("speedup") is not None:
                home = table.home(label, folder)
                if not (home / BEFORE).is_file():
                    replace_text(home / BEFORE, encode(row))
                one = Again(table, label, home, read_object(home / BEFORE), now(table.settings(label)))
                every.append(one)
                due += [one] if row == one.before else []
    for group in in_groups(due):
        print(f"{group[0].table.name}: times {', '.join(one.label for one in group)}", flush=True)
        timed = time([(one.settings, one.before["model"], one.home) for one in group])
        for one, row in zip(group, timed, strict=True):
            if stale(one.before, one.hashes) in ([], ["code"]):  # else it is another method's
                keep(one.table, docs, one.label, with_times_of(one.before, row))
    uncounted = [one for one in every if stale(one.now(docs), one.hashes)]
    print(
        f"all times are taken; {len(uncounted)} rows are to be counted, on a machine that need not be quiet", flush=True
    )
    for one in uncounted:
        keep(one.table, docs, one.label, run(one.settings, one.home) | {"together": TOGETHER} | one.hashes)
    return every


def in_groups(rows: Sequence[Again]) -> list[list[Again]]:
    """Rows that can be timed with one plain decoding: of one table, model, sampling and protocol, TOGETHER at most."""
    found: dict[object, list[Again]] = {}
    for one in rows:
        config = OmegaConf.to_container(composed(CONFIG_FOLDER, "evaluate", one.settings), resolve=True)
        shared = {name: config[name] for name in (*PLAIN_DECODING, "prompts", "split", "seed", "speed")}
        found.setdefault((one.table.name, digest(shared)), []).append(one)
    return [rows[at : at + TOGETHER] for rows in found.values() for at in range(0, len(rows), TOGETHER)]


def with_times_of(kept: Row, found: Row) -> Row:
    """A kept row with the times of another: what is counted and judged stays, with WRITTEN, and what its warnings
    say of it. Tokens per step are of the judged images, where there are some."""
    judged = [] if "quality.num_images=0" in kept["settings"] else ["tokens_per_step"]
    counted = [key for figure in figures(kept=True) if figure.kind != "speed" for key in figure.keys]
    counts = {key: kept.get(key) for key in ("output_tv_estimator", *judged, *counted)}
    counts |= {key: kept[key] for key in WRITTEN if key in kept}
    of_counts = [text for text in _warnings(kept) if text not in speed_warnings(kept)]
    warnings = WARNING_BREAK.join(dict.fromkeys([*_warnings(found), *of_counts])) or None
    return found | counts | {"warnings": warnings, "together": TOGETHER}


def moved(rows: Sequence[Again], docs: Path) -> str:
    """A table of the figures that lie beyond the bounds that the row had before."""
    cells = []
    for one, row in [(one, one.now(docs)) for one in rows]:
        for key, *bounds in (figure.keys for figure in figures(kept=True, bounds=True)):
            low, high = map(one.before.get, bounds)
            if None not in (low, high, row.get(key)) and not low <= row[key] <= high:
                figures_of = (format_value(at, key) for at in (one.before, row))
                cells.append([one.table.name, one.label, title_of(key), *figures_of])
    done = sum(one.now(docs) != one.before for one in rows)
    head = f"{done} of {len(rows)} timed rows are measured again; beyond the bounds of before:\n"
    return "\n".join([head, *table_lines(["table", "method", "figure", "before", "now"], cells), ""])


def write_pages(table: Table, docs: Path) -> None:
    """Writes a table's block into its pages."""
    for page in table.pages:
        write_block(docs / page, table.name, render(table, rows_of(table, docs), page))


def render(table: Table, rows: Sequence[Row], page: str) -> str:
    """A table in Markdown, for a page, with its caption: machine, date and command."""
    kept = table.kept(rows)
    if not kept:
        return f"No rows are kept for this table yet; `make results TABLE={table.name}` measures them.\n"
    titles = ["method", *map(title_of, table.columns)]
    notes = _notes(kept)
    cells = (
        [label + _marks(row, notes), *(cell_of(row, column) for column in table.columns)] for label, row in kept.items()
    )
    below = [f"{number}: {warning}." for warning, number in notes.items()]
    below = [fill(line, 120) for line in [*_cautions(table, kept), *below]]
    return "\n".join([*_caption(table, kept, page), *table_lines(titles, cells), *(["", *below] if below else []), ""])


def render_board(tables: Mapping[str, Table], docs: Path) -> str:
    """Every preset with a row in a table of BOARD, with its further settings: lossless ones first. They are ranked by
    speed-up among those of as many prompts on one machine; untimed presets stand below, by tokens per step."""
    found: dict[str, tuple[str, Row]] = {}  # by own settings
    for name in BOARD:
        for label, row in tables[name].kept(rows_of(tables[name], docs)).items():
            found.setdefault(" ".join(tables[name].rows[label]), (name, row))
    groups: dict[tuple, list[tuple[str, str, Row]]] = {}  # presets that are ranked with one another
    for own, (name, row) in found.items():
        if own.startswith("+method="):
            alike = -int(prompts_of(row).split()[-1]), row["machine"], row["dtype"]
            kind = not row["lossless"], row.get("speedup") is None, *alike
            groups.setdefault(kind, []).append((own, name, row))
    cells = []
    for kind in sorted(groups):
        alike = sorted(groups[kind], key=lambda at: (-(at[2].get("speedup") or 0), -at[2]["tokens_per_step"]))
        cells += [[str(place), *_board_cells(*at)] for place, at in enumerate(alike, 1)]
    titles = ["rank", "settings", "output TV", "tokens per step", "speed-up", "prompts", "needs", "table"]
    return "\n".join([*table_lines(titles, cells), ""])


def _board_cells(own: str, table: str, row: Row) -> list[str]:
    price, needs = "lossless" if row["lossless"] else _price(row), "a trained drafter"
    figures = (format_value(row, key) for key in ("tokens_per_step", "speedup"))
    return [f"`{own}`", price, *figures, prompts_of(row), needs if row.get("drafter_hash") else "nothing", table]


def render_protocols(tables: Mapping[str, Table], docs: Path) -> str:
    """The speed-ups of each method of the headline: the one to quote, then those by other protocols under their
    suffixes."""
    kept = {name: table.kept(rows_of(table, docs)) for name, table in tables.items()}

    def speed(name: str, own: Sequence[str], figure: str) -> str:
        rows = (row for label, row in kept[name].items() if sorted(tables[name].rows[label]) == sorted(own))
        return next((format_value(row, figure) for row in rows), "-")

    methods = [own for own in tables["headline"].rows.values() if own[0].startswith("+method=")]
    cells = (
        [f"`{' '.join(own).removeprefix('+method=')}`", speed("headline", own, "speedup")]
        + [speed(name, [*own, *besides], figure) for name, besides, figure in SUFFIXES.values()]
        for own in methods
    )
    return "\n".join([*table_lines(["method", "speed-up", *SUFFIXES], cells), ""])


def _price(row: Row) -> str:
    if row.get("output_tv") is not None:
        return format_value(row, "output_tv")
    if row.get("least_output_tv") is None:
        return "-"
    found = "at least" if row["least_output_tv_low"] > 0 else "none found,"
    return f"{found} {format_value(row, 'least_output_tv')}"


def _notes(kept: Mapping[str, Row]) -> dict[str, int]:
    """The warnings of all rows, numbered; those that differ in their numbers alone have one number."""
    texts = [_without_numbers(text) for row in kept.values() for text in _warnings(row)]
    return {text: number for number, text in enumerate(dict.fromkeys(texts), 1)}


def _warnings(row: Row) -> list[str]:
    return [text for text in (row.get("warnings") or "").split(WARNING_BREAK) if text]


def _without_numbers(text: str) -> str:
    """A warning as a sentence about several rows: "0.3 cores" and "0.5 cores" are one."""
    return re.sub(r"(?<![\w.])\d[\d.]*(?= cores)", "some", text)


def _marks(row: Row, notes: Mapping[str, int]) -> str:
    numbers = sorted({notes[_without_numbers(text)] for text in _warnings(row)})
    return f" ({', '.join(map(str, numbers))})" if numbers else ""


def _cautions(table: Table, kept: Mapping[str, Row]) -> list[str]:
    """What a reader must know before rows are compared."""
    found = []
    timed = [row for row in kept.values() if row.get("baseline_latency_s") and not row["compile"]]
    for model in dict.fromkeys(row["model"] for row in timed if "speedup" in table.columns):
        times = sorted(row["baseline_latency_s"] for row in timed if row["model"] == model)
        if times[-1] > SPREAD * times[0]:
            found.append(
                f"Plain decoding took {times[0]:.2f} to {times[-1]:.2f} s an image of {model} while these rows were "
                "timed: the machine changed, compare rows with care."
            )
    sampled = [row for row in kept.values() if row.get("output_tv_floor") is not None]
    if "output_tv" in table.columns and sampled:
        positions = sorted({row["output_tv_positions"] for row in sampled})
        found.append(f"Output TV with a floor is a mean over {' or '.join(map(str, positions))} positions.")
    return found


def _caption(table: Table, kept: Mapping[str, Row], page: str) -> list[str]:
    machines, dtypes, dates = (sorted({row[key] for row in kept.values()}) for key in ("machine", "dtype", "date"))
    days, number = " to ".join(dict.fromkeys([dates[0], dates[-1]])), len(table.rows) - len(kept)
    missing = f" {number} of {len(table.rows)} rows are missing." if number else ""
    link = os.path.relpath(Path("docs", "rows"), Path("docs", page).parent)
    revisions = dict.fromkeys(str(row["revision"])[:7] for row in kept.values())
    in_turn = [f"Up to {TOGETHER} rows were timed in turn, image by image, with one plain decoding."]
    return [
        f"Written by `make results TABLE={table.name}` on {', '.join(machines)} in {', '.join(dtypes)},",
        f"{days}, at revision {', '.join(revisions)}; each row is",
        f"`python evaluate.py {' '.join(table.shared)}`",
        f"with its settings in [rows]({link}).{missing}",
        *(in_turn if any(row.get("together") for row in kept.values()) else []),
        "",
    ]


def evaluate(settings: Sequence[str], folder: Path) -> Row:
    """Runs evaluate.py in a process of its own, quietly unless it fails."""
    program, shown = program_of("evaluate.py")
    command = [*program, *settings, override("hydra.run.dir", folder)]
    print(*shown, *settings, flush=True)
    done = subprocess.run([*command, "tracking.mode=disabled"], cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise LanternError(f"evaluate.py {' '.join(settings)} ended with {done.returncode}; its message is above")
    return _with_origin(list(json.loads((folder / SUMMARY).read_text()).values()), folder)


def _with_origin(rows: Sequence[Row], folder: Path) -> Row:
    """The last of a run's rows, with ORIGIN."""
    origin, plain = json.loads((folder / "provenance.json").read_text()), rows[0]
    where = (origin["device"], origin["time"][:10], _revision(**origin["git"]))
    return rows[-1] | dict(zip(ORIGIN, (*where, plain["verify_ms"], plain["target_forwards"]), strict=True))


def time_together(asked: Sequence[Asked]) -> list[Row]:
    """Times the methods of several settings in turn, image by image, with one plain decoding, whose times are recorded
    in each of their run folders."""
    made: list[tuple[Evaluation, Pipeline]] = []
    open_bar(EvaluationBar(0))  # several sides would count as one
    for settings, model, folder in asked:
        cfg = composed(CONFIG_FOLDER, "evaluate", [*settings, "quality.num_images=0", "tracking.mode=disabled"])
        run_setting(cfg, model, folder, None, measure=lambda *one: made.append(one) or [])
    request, alike = made[0][0].request, dict[object, Side]()
    every = [side for evaluation, pipeline in made for side in evaluation.sides(pipeline)]
    shared = [
        alike.setdefault(side.row_keys["compile"] if is_baseline(side.row_keys) else id(side), side) for side in every
    ]
    time_in_turn([*alike.values()], request.timed, request.max_retimed)
    for side, timed in zip(every, shared, strict=True):
        if len(side.lines("speed", request.timed)) < request.num_timed:
            lines = timed.lines("speed", request.timed)
            side.add(lines, timed.tokens(lines))
    return [
        _with_origin([one.row for one in replace(evaluation, laws=None).run(pipeline)], folder)
        for (evaluation, pipeline), (_, _, folder) in zip(made, asked, strict=True)
    ]


def _revision(revision: str | None, dirty: bool | None) -> str | None:
    """As git describes it: marked where files differed from the commit."""
    return f"{revision}-dirty" if dirty else revision


def main(names: Sequence[str]) -> None:
    """Measures and writes the named tables, or all."""
    docs, folder = CHECKOUT / "docs", CHECKOUT / "runs" / "results"
    tables, is_again = load_tables(docs), AGAIN in names
    names = [name for name in names if name != AGAIN] or list(tables)
    for name in names:
        if name not in (*tables, GLOSSARY):
            raise LanternError(f"table {name} is unknown; give some of {', '.join(tables)}, {GLOSSARY} or {AGAIN}")
    chosen = [tables[name] for name in names if name != GLOSSARY]  # which is written below, as always
    if is_again:
        rows = measure_again(chosen, docs, folder / AGAIN, evaluate, time_together)
        print(moved(rows, docs))
    for table in chosen:
        if not is_again:
            measure(table, docs, folder, evaluate)
        write_pages(table, docs)
    write_block(docs / "lab" / "field.md", "board", render_board(tables, docs))
    write_block(docs / "lab" / "results.md", "protocols", render_protocols(tables, docs))
    write_block(docs / f"{GLOSSARY}.md", "figures", glossary())


def glossary() -> str:
    """The table of docs/glossary.md."""
    lines = (f"| `{one.key}` | {one.title} | {one.explanation} |" for one in FIGURES.values())
    return "\n".join(["| key | title | meaning |", "|---|---|---|", *lines, ""])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
