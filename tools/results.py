"""python -m tools.results [table …]: measures the rows of docs/tables.yaml that docs/rows lacks, each by a
command of its own, and writes the tables of the docs between their markers. A stopped run goes on where it stopped; a
row whose command has changed is measured again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from lantern.errors import LanternError
from lantern.evaluation.records import FINISHED
from lantern.evaluation.rows import SUMMARY, Row, append_rows, read_rows
from lantern.identity import digest
from lantern.reporting.table import bounds_of, digits_of, format_value
from lantern.runtime.home import CHECKOUT, override, program_of
from tools.markdown import table_lines, write_block

Run = Callable[[Sequence[str], Path], Row]  # settings of evaluate.py, run folder -> its row and where it came from
ORIGIN = ("machine", "date", "revision")
KEPT = (  # of a result row, besides the columns: what the docs show or a reader would ask for
    "model", "drafter", "tree", "verification", "acceptance", "lossless", "dtype", "threads", "compile", "num_timed",
    "retimed", "other_cores", "latency_s", "baseline_latency_s", "speedup", "speedup_low", "speedup_high",
    "tokens_per_step", "draft_ms", "verify_ms", "accept_ms", "round_ms", "overhead", "output_tv", "output_tv_low",
    "output_tv_high", "gpu_sharers",
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


COLUMNS: Mapping[str, tuple[str, Callable[[Row], str]]] = {
    "tokens_per_step": ("tokens per step", lambda row: format_value(row, "tokens_per_step")),
    "speedup": ("speed-up", _speedup),
    "round": ("round, ms", _round),
    "overhead": ("overhead", lambda row: "-" if row.get("overhead") is None else f"{row['overhead']:.0%}"),
    "output_tv": ("output TV", lambda row: format_value(row, "output_tv")),
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


def measure(table: Table, docs: Path, folder: Path, run: Run) -> None:
    """Measures the missing rows; each is kept, and the page written, before the next is begun. A run that was stopped
    goes on; one that had finished is removed, since its row was deleted to be measured again."""
    for label in table.rows:
        if label in table.kept(rows_of(table, docs)):
            continue
        settings = table.settings(label)
        home = folder / table.name / digest(repr(settings))
        if (home / FINISHED).is_file():
            shutil.rmtree(home)
        found = run(settings, home)
        kept = {key: found.get(key) for key in (*ORIGIN, *KEPT)}
        path = docs / "rows" / f"{table.name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        append_rows(path, [{"label": label, "settings": settings, **kept}])
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
    cells = ([label, *(COLUMNS[column][1](row) for column in table.columns)] for label, row in kept.items())
    return _caption(table, kept, page) + "\n".join(table_lines(titles, cells)) + "\n"


def _caption(table: Table, kept: Mapping[str, Row], page: str) -> str:
    machines, dtypes, dates = (sorted({row[key] for row in kept.values()}) for key in ("machine", "dtype", "date"))
    days, number = " to ".join(dict.fromkeys([dates[0], dates[-1]])), len(table.rows) - len(kept)
    missing = f" {number} of {len(table.rows)} rows are missing." if number else ""
    source = f"rows/{table.name}.jsonl"
    link = os.path.relpath(Path("docs", source), Path("docs", page).parent)
    where = f"{', '.join(machines)} in {', '.join(dtypes)}, {days}"
    return (
        f"Written by `make results TABLE={table.name}` on {where}; each row is\n"
        f"`python evaluate.py {' '.join(table.shared)}` with the settings in\n"
        f"[{source}]({link}).{missing}\n\n"
    )


def evaluate(settings: Sequence[str], folder: Path) -> Row:
    """Runs evaluate.py in a process of its own, quietly unless it fails."""
    program, shown = program_of("evaluate.py")
    command = [*program, *settings, override("hydra.run.dir", folder)]
    print(*shown, *settings, flush=True)
    done = subprocess.run([*command, "tracking.mode=disabled"], cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise LanternError(f"evaluate.py {' '.join(settings)} ended with {done.returncode}; its message is above")
    origin = json.loads((folder / "provenance.json").read_text())
    row = list(json.loads((folder / SUMMARY).read_text()).values())[-1]
    where = (origin["device"], origin["time"][:10], _revision(**origin["git"]))
    return row | dict(zip(ORIGIN, where, strict=True))


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


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
