"""python -m tools.results [table …]: measures the rows of docs/tables.yaml that docs/rows lacks, each by a
command of its own, and writes the tables of the docs between their markers. A stopped run goes on where it stopped. A
row whose command, preset or weights have changed is measured again; rows of earlier code are named."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill

from omegaconf import OmegaConf

from lantern.cli.composing import composed
from lantern.errors import LanternError
from lantern.evaluation.records import FINISHED
from lantern.evaluation.rows import SUMMARY, WARNING_BREAK, Row, append_rows, read_rows
from lantern.identity import DECODING, PACKAGE, bytes_hash, code_of, digest
from lantern.models.checkpoints import local_hashes
from lantern.reporting.table import bounds_of, digits_of, format_value
from lantern.runtime.home import CHECKOUT, CONFIG_FOLDER, override, program_of
from tools.markdown import table_lines, write_block

Run = Callable[[Sequence[str], Path], Row]  # settings of evaluate.py, run folder -> its row and where it came from
Now = Callable[[Sequence[str]], Mapping[str, str]]  # settings -> the hashes that a row measured today would have
ORIGIN = ("machine", "date", "revision", "plain_verify_ms", "plain_forwards")
WRITTEN = ("preset", "weights", "code")  # hashes of what a row was made from
# of lantern/: what decodes, and what times and judges it
DECIDES = (
    "acceptance", "continuous", "drafters", "engine", "evaluation", "metrics", "models", "trees", "tuning",
    "runtime", "scenes", "verification", "decoding.py", "hashing.py", "noise.py", "pipeline.py", "row_parallel.py",
    "sampling.py", "types.py",
)  # fmt: skip
SPREAD = 1.15  # of plain decoding's times within a table, above which the table says so
BOARD = ("field", "rest", "relaxed", "recent")  # tables of presets; of two rows of one, the first table's counts
KEPT = (  # of a result row, besides the columns: what the docs show or a reader would ask for
    "model", "drafter", "tree", "verification", "acceptance", "lossless", "dtype", "threads", "compile", "num_timed",
    "retimed", "other_cores", "latency_s", "baseline_latency_s", "speedup", "speedup_low", "speedup_high",
    "tokens_per_step", "draft_ms", "verify_ms", "accept_ms", "round_ms", "overhead", "output_tv", "output_tv_low",
    "output_tv_high", "output_tv_floor", "output_tv_positions", "output_tv_redraws", "output_tv_estimator",
    "least_output_tv", "least_output_tv_low", "least_output_tv_high", "least_output_tv_positions",
    "target_forwards", "k", "delta", "lam", "drafter_hash", "target_hash", "fingerprint", "gpu_sharers", "law",
    "speedup_over_compiled", "speedup_over_compiled_low", "speedup_over_compiled_high", "code_distance",
    "code_distance_low", "code_distance_high", "head_ms", "output_distance", "output_distance_low",
    "output_distance_high", "output_told_apart", "output_told_apart_floor", "frechet_diff", "frechet_diff_low",
    "frechet_diff_high", "kernel_diff", "kernel_diff_low", "kernel_diff_high", "all_accuracy_loss",
    "all_accuracy_loss_low", "all_accuracy_loss_high", "warnings",
)  # fmt: skip


def _round(row: Row) -> str:
    """Its parts, or the sum alone where they have no times: on a GPU."""
    parts = [row.get(part) for part in ("draft_ms", "verify_ms", "accept_ms")]
    return " + ".join(f"{ms:.1f}" for ms in ([row["round_ms"]] if None in parts else parts))


def _speedup(row: Row) -> str:
    """The smaller ratio, where plain decoding was timed with torch.compile as well."""
    known = [key for key in ("speedup", "speedup_over_compiled") if row.get(key) is not None]
    key = min(known, key=lambda name: row[name])
    return f"{row[key]:.2f}{bounds_of(row, key)}"


def _bounded(row: Row, key: str) -> str:
    """A number with its bounds, if it has any; "-" for none."""
    return "-" if row.get(key) is None else digits_of(row[key])(row[key]) + bounds_of(row, key)


def _distance(row: Row) -> str:
    value, low, high = (row.get(f"output_distance{end}") for end in ("", "_low", "_high"))
    return "-" if value is None else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _plain_ms(row: Row) -> float | None:
    """Plain decoding's milliseconds a token, prefill included, in the minutes in which the row was timed."""
    if not row.get("baseline_latency_s"):
        return None
    return 1000 * row["baseline_latency_s"] / (row["plain_forwards"] + 1)


def _times_one_node(row: Row) -> str:
    """Time of the target's pass over a round's nodes, divided by that of plain decoding's pass over one node: the part
    of a round's cost that differs most between machines."""
    known = row.get("plain_verify_ms") and row.get("verify_ms")  # on a GPU neither is
    return f"{row['verify_ms'] / row['plain_verify_ms']:.1f}" if known else "-"


COLUMNS: Mapping[str, tuple[str, Callable[[Row], str]]] = {
    "tokens_per_step": ("tokens per step", lambda row: format_value(row, "tokens_per_step")),
    "speedup": ("speed-up", _speedup),
    "plain_ms": ("AR, ms a token", lambda row: f"{_plain_ms(row):.2f}" if _plain_ms(row) else "-"),
    "pass": ("pass / AR's", _times_one_node),
    "round": ("round, ms", _round),
    "overhead": ("overhead", lambda row: "-" if row.get("overhead") is None else f"{row['overhead']:.0%}"),
    "output_tv": ("output TV", lambda row: format_value(row, "output_tv")),
    "output_tv_floor": ("its floor", lambda row: _bounded(row, "output_tv_floor")),
    "least_output_tv": ("output TV, at least", lambda row: _bounded(row, "least_output_tv")),
    "code_distance": ("code distance", lambda row: _bounded(row, "code_distance")),
    "head": ("head, ms", lambda row: "-" if row.get("head_ms") is None else f"{row['head_ms']:.1f}"),
    "output_distance": ("output distance", _distance),
    "told_apart": ("told apart", lambda row: format_value(row, "output_told_apart")),
    "frechet_diff": ("Fréchet less AR's", lambda row: _bounded(row, "frechet_diff")),
    "all_accuracy_loss": ("prompts right, loss", lambda row: _bounded(row, "all_accuracy_loss")),
    "retimed": ("timed again", lambda row: str(row["retimed"])),
    "lossless": ("lossless", lambda row: "yes" if row["lossless"] else "no"),
}


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

    def kept(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Those of kept rows that today's commands made, by label; of several the last."""
        found = {row["label"]: row for row in rows if row["label"] in self.rows}
        return {
            label: found[label]
            for label in self.rows
            if label in found and found[label]["settings"] == self.settings(label)
        }


def load_tables(docs: Path) -> dict[str, Table]:
    """The tables of docs/tables.yaml, by name; LanternError for a column that is unknown."""
    listed = OmegaConf.to_container(OmegaConf.load(docs / "tables.yaml"))
    tables = {name: Table(name, **values) for name, values in listed.items()}
    for table in tables.values():
        for column in table.columns:
            if column not in COLUMNS:
                raise LanternError(f"docs/tables.yaml: column {column} is unknown; give some of {', '.join(COLUMNS)}")
    return tables


def rows_of(table: Table, docs: Path) -> list[Row]:
    """All rows kept for a table."""
    path = docs / "rows" / f"{table.name}.jsonl"
    return read_rows(path) if path.is_file() else []


def hashes_of(settings: Sequence[str]) -> dict[str, str]:
    """What a row of these settings is made from today: `preset`, the composed settings that decide what is decoded;
    `weights`, the contents of all that they name; `code`, of what decodes, times and judges."""
    config = composed(CONFIG_FOLDER, "evaluate", settings)
    parts = (*DECODING, "prompts", "split", "seed", "output_tv")
    preset = {name: OmegaConf.to_container(config)[name] for name in parts}
    read = OmegaConf.to_container(config, resolve=True)
    weights = local_hashes({name: read.get(name) for name in ("model", "drafter", "metrics")})
    return {"preset": digest(_without_modules(preset)), "weights": digest(sorted(weights.items())), "code": code_now()}


@cache
def code_now() -> str:
    files = [path for name in DECIDES for path in sorted((PACKAGE / name).rglob("*.py")) or [PACKAGE / name]]
    return bytes_hash(code_of(path.read_text("utf-8")).encode() for path in files)


def _without_modules(settings: object) -> object:
    """Settings with each class by its own name: a module that is moved changes no figure."""
    if isinstance(settings, Mapping):
        return {
            key: str(value).rsplit(".", 1)[-1] if key == "_target_" else _without_modules(value)
            for key, value in settings.items()
        }
    return [_without_modules(value) for value in settings] if isinstance(settings, list) else settings


def stale(row: Row, now: Mapping[str, str]) -> list[str]:
    """Which of WRITTEN have changed since a row was measured. Rows of 2026-11-26 and before have none: their code is
    another."""
    return [name for name in WRITTEN if row.get(name, "" if name == "code" else now[name]) != now[name]]


def measure(table: Table, docs: Path, folder: Path, run: Run, now: Now = hashes_of) -> None:
    """Measures the rows that are missing or of another preset or other weights; each is kept, and the page written,
    before the next is begun. A run that was stopped goes on; one that had finished is removed, since its row is to be
    measured again. Names the rows of earlier code."""
    for label in table.rows:
        settings, kept = table.settings(label), table.kept(rows_of(table, docs)).get(label)
        hashes = now(settings)
        changed = stale(kept, hashes) if kept else []
        if kept and changed in ([], ["code"]):
            if changed:
                print(
                    f"{table.name}, {label}: of earlier code; delete it from docs/rows to measure it again", flush=True
                )
            continue
        home = folder / table.name / digest(repr(settings))
        if (home / FINISHED).is_file():
            shutil.rmtree(home)
        found = run(settings, home)
        values = {key: found.get(key) for key in (*ORIGIN, *KEPT)}
        path = docs / "rows" / f"{table.name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        append_rows(path, [{"label": label, "settings": settings, **values, **hashes}])
        write_pages(table, docs)


def write_pages(table: Table, docs: Path) -> None:
    """Writes a table's block into its pages."""
    for page in table.pages:
        write_block(docs / page, table.name, render(table, rows_of(table, docs), page))


def render(table: Table, rows: Sequence[Row], page: str) -> str:
    """A table in Markdown, for a page, with its caption: machine, date and command."""
    kept = table.kept(rows)
    if not kept:
        return f"No rows are kept for this table yet; `make results TABLE={table.name}` measures them.\n"
    titles = ["method", *(COLUMNS[column][0] for column in table.columns)]
    notes = _notes(kept)
    cells = (
        [label + _marks(row, notes), *(COLUMNS[column][1](row) for column in table.columns)]
        for label, row in kept.items()
    )
    below = [f"{number}: {warning}." for warning, number in notes.items()]
    below = [fill(line, 120) for line in [*_cautions(table, kept), *below]]
    return "\n".join([*_caption(table, kept, page), *table_lines(titles, cells), *(["", *below] if below else []), ""])


def render_board(tables: Mapping[str, Table], docs: Path) -> str:
    """Every preset with a row in a table of BOARD, with its further settings: lossless ones first, each group by
    speed-up, with untimed presets below, by tokens per step."""
    found: dict[str, tuple[str, Row]] = {}  # by own settings
    for name in BOARD:
        for label, row in tables[name].kept(rows_of(tables[name], docs)).items():
            found.setdefault(" ".join(tables[name].rows[label]), (name, row))
    presets = [(own, *found[own]) for own in found if own.startswith("+method=")]
    presets.sort(key=lambda at: (-at[2]["lossless"], -(at[2].get("speedup") or 0), -at[2]["tokens_per_step"]))
    cells = (
        [
            f"`{own}`",
            "lossless" if row["lossless"] else _price(row),
            format_value(row, "tokens_per_step"),
            _speedup(row) if row.get("speedup") else "-",
            "a trained drafter" if row.get("drafter_hash") else "nothing",
            name,
        ]
        for own, name, row in presets
    )
    titles = ["settings", "output TV", "tokens per step", "speed-up", "needs", "table"]
    return "\n".join([*table_lines(titles, cells), ""])


def _price(row: Row) -> str:
    if row.get("output_tv") is not None:
        return format_value(row, "output_tv")
    return "-" if row.get("least_output_tv") is None else f"at least {_bounded(row, 'least_output_tv')}"


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
                "timed: the machine changed, and speed-ups of different rows are not strictly comparable."
            )
    sampled = [row for row in kept.values() if row.get("output_tv_floor") is not None]
    if "output_tv" in table.columns and sampled:
        positions = sorted({row["output_tv_positions"] for row in sampled})
        found.append(
            f"Output TV with a floor is a mean over {' or '.join(map(str, positions))} positions; the floor is the "
            "exact rule's value by the same estimate, which would be 0 with infinitely many redraws."
        )
    return found


def _caption(table: Table, kept: Mapping[str, Row], page: str) -> list[str]:
    machines, dtypes, dates = (sorted({row[key] for row in kept.values()}) for key in ("machine", "dtype", "date"))
    days, number = " to ".join(dict.fromkeys([dates[0], dates[-1]])), len(table.rows) - len(kept)
    missing = f" {number} of {len(table.rows)} rows are missing." if number else ""
    source = f"rows/{table.name}.jsonl"
    link = os.path.relpath(Path("docs", source), Path("docs", page).parent)
    revisions = dict.fromkeys(str(row["revision"])[:7] for row in kept.values())
    return [
        f"Written by `make results TABLE={table.name}` on {', '.join(machines)} in {', '.join(dtypes)},",
        f"{days}, at revision {', '.join(revisions)}; each row is",
        f"`python evaluate.py {' '.join(table.shared)}`",
        f"with the settings in [{source}]({link}).{missing}",
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
    origin = json.loads((folder / "provenance.json").read_text())
    plain, *_, row = rows if len(rows := list(json.loads((folder / SUMMARY).read_text()).values())) > 1 else rows * 2
    where = (origin["device"], origin["time"][:10], _revision(**origin["git"]))
    return row | dict(zip(ORIGIN, (*where, plain["verify_ms"], plain["target_forwards"]), strict=True))


def _revision(revision: str | None, dirty: bool | None) -> str | None:
    """As git describes it: marked where files differed from the commit."""
    return f"{revision}-dirty" if dirty else revision


def main(names: Sequence[str]) -> None:
    """Measures and writes the named tables, or all."""
    docs = CHECKOUT / "docs"
    tables = load_tables(docs)
    for name in names or tables:
        if name not in tables:
            raise LanternError(f"table {name} is unknown; give some of {', '.join(tables)}")
        measure(tables[name], docs, CHECKOUT / "runs" / "results", evaluate)
        write_pages(tables[name], docs)
    write_block(docs / "lab" / "field.md", "board", render_board(tables, docs))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
