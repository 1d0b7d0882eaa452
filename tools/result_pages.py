"""The tables of docs/tables.yaml with their kept rows, as the pages show them between their markers; tools/results.py
measures the rows."""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from omegaconf import OmegaConf

from lantern.errors import LanternError
from lantern.evaluation.rows import WARNING_BREAK, Row, read_rows
from lantern.figures import FIGURES
from lantern.identity import digest
from lantern.reporting.table import format_value
from tools.markdown import table_lines, write_block

SPREAD = 1.15  # of plain decoding's times within a table, above which the table says so
BOARD = ("headline", "rest", "recent")  # tables of presets; of two rows of one, the first table's counts
SUFFIXES = {  # of a method's speed-up by another protocol than the headline's: a table, settings besides, a figure
    "-compiled": ("compiled", (), "speedup_over_compiled"),
    "-emoji": ("worlds", ("model=emoji",), "speedup"),
}


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


def write_pages(table: Table, docs: Path) -> None:
    """Writes a table's block into its pages."""
    for page in table.pages:
        write_block(docs / page, table.name, render(table, rows_of(table, docs), page))


def write_summaries(tables: Mapping[str, Table], docs: Path) -> None:
    """Writes what pages say of several tables, and the glossary's figures."""
    write_block(docs / "lab" / "field.md", "board", render_board(tables, docs))
    write_block(docs / "lab" / "results.md", "protocols", render_protocols(tables, docs))
    write_block(docs / "glossary.md", "figures", glossary())


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
    found: dict[str, Row] = {}  # by own settings
    for name in BOARD:
        for label, row in tables[name].kept(rows_of(tables[name], docs)).items():
            found.setdefault(" ".join(tables[name].rows[label]), row)
    groups: dict[tuple, list[tuple[str, Row]]] = {}  # presets that are ranked with one another
    for own, row in found.items():
        if own.startswith("+method="):
            alike = -int(prompts_of(row).split()[-1]), row["machine"], row["dtype"]
            kind = not row["lossless"], row.get("speedup") is None, *alike
            groups.setdefault(kind, []).append((own, row))
    cells = []
    for kind in sorted(groups):
        alike = sorted(groups[kind], key=lambda at: (-(at[1].get("speedup") or 0), -at[1]["tokens_per_step"]))
        cells += [[str(place), *_board_cells(*at)] for place, at in enumerate(alike, 1)]
    titles = ["rank", "settings", "output TV", "tokens per step", "speed-up", "AR, ms a token", "round, ms", "needs"]
    shown = [row for group in groups.values() for _, row in group]
    return "\n".join([f"On {_made(shown)}.", "", *table_lines(titles, cells), ""])


def _board_cells(own: str, row: Row) -> list[str]:
    price, needs = "lossless" if row["lossless"] else _price(row), "a drafter" if row.get("drafter_hash") else "nothing"
    figures = (format_value(row, key) for key in ("tokens_per_step", "speedup"))
    return [f"`{own}`", price, *figures, _plain_ms(row), _round(row) if row.get("speedup") else "-", needs]


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
    texts = [_without_numbers(text) for row in kept.values() for text in warnings_of(row)]
    return {text: number for number, text in enumerate(dict.fromkeys(texts), 1)}


def warnings_of(row: Row) -> list[str]:
    return [text for text in (row.get("warnings") or "").split(WARNING_BREAK) if text]


def _without_numbers(text: str) -> str:
    """A warning as a sentence about several rows: "0.3 cores" and "0.5 cores" are one."""
    return re.sub(r"(?<![\w.])\d[\d.]*(?= cores)", "some", text)


def _marks(row: Row, notes: Mapping[str, int]) -> str:
    numbers = sorted({notes[_without_numbers(text)] for text in warnings_of(row)})
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
    number = len(table.rows) - len(kept)
    missing = f" {number} of {len(table.rows)} rows are missing." if number else ""
    link = os.path.relpath(Path("docs", "rows"), Path("docs", page).parent)
    together = max(row.get("together") or 0 for row in kept.values())
    in_turn = [f"Up to {together} rows were timed in turn, image by image, with one plain decoding."]
    return [
        f"Written by `make results TABLE={table.name}` on {_made(kept.values())}; each row is",
        f"`python evaluate.py {' '.join(table.shared)}`",
        f"with its settings in [rows]({link}).{missing}",
        *(in_turn if together else []),
        "",
    ]


def _made(rows: Collection[Row]) -> str:
    """Where and when rows were measured, and by which code."""
    machines, dtypes, dates = (sorted({row[key] for row in rows}) for key in ("machine", "dtype", "date"))
    days, revisions = dict.fromkeys([dates[0], dates[-1]]), dict.fromkeys(str(row["revision"])[:7] for row in rows)
    return f"{', '.join(machines)} in {', '.join(dtypes)},\n{' to '.join(days)}, at revision {', '.join(revisions)}"


def glossary() -> str:
    """The table of docs/glossary.md."""
    lines = (f"| `{one.key}` | {one.title} | {one.explanation} |" for one in FIGURES.values())
    return "\n".join(["| key | title | meaning |", "|---|---|---|", *lines, ""])
