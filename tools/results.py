"""python -m tools.results [again] [table …]: measures the rows of docs/tables.yaml that docs/rows lacks, each by a
command of its own, and writes the tables of the docs between their markers. A stopped run goes on where it stopped. A
row whose command, preset or weights have changed is measured again; rows of earlier code are named. again: all timed
rows of the tables, in one go."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
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
from lantern.figures import figures
from lantern.identity import DECODING, PACKAGE, PLAIN_DECODING, bytes_hash, code_of, digest
from lantern.models.checkpoints import local_hashes
from lantern.pipeline import Pipeline
from lantern.reporting.table import format_value
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.home import CHECKOUT, CONFIG_FOLDER, program_of
from lantern.runtime.overrides import override
from tools.markdown import table_lines
from tools.result_pages import Table, load_tables, rows_of, title_of, warnings_of, write_pages, write_summaries

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
GLOSSARY = "glossary"  # in place of tables: the words of lantern/figures.py alone
AGAIN = "again"  # before tables
TOGETHER = 10  # rows that are timed in turn with one plain decoding, at most: a quarter of a minute an image
BEFORE = "before.json"  # in a run folder: the kept row
RECORDED = (  # of a result row, besides its figures
    "model", "drafter", "tree", "verification", "acceptance", "lossless", "dtype", "threads", "compile", "version",
    "output_tv_estimator", "k", "delta", "lam", "drafter_hash", "target_hash", "fingerprint", "law", "warnings",
)  # fmt: skip


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
    """Which of WRITTEN have changed since a row was measured; all where there is none."""
    return [name for name in WRITTEN if row is None or row.get(name) != now.get(name)]


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
    of_counts = [text for text in warnings_of(kept) if text not in speed_warnings(kept)]
    warnings = WARNING_BREAK.join(dict.fromkeys([*warnings_of(found), *of_counts])) or None
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
    write_summaries(tables, docs)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
