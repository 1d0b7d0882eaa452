"""Result rows for people: labels that name what differs, a table for the terminal, a csv, and one html page."""

import base64
import csv
import html
import io
from collections.abc import Sequence
from pathlib import Path

from lantern.results import Row, is_baseline, replace_text

LABEL_KEYS = (
    "model", "drafter", "drafter_hash", "tree", "verification", "acceptance", "k", "delta", "lam", "temperature",
    "top_k", "top_p", "cfg_scale", "seed",
)  # fmt: skip
COLUMNS = {
    "tokens_per_step": "tokens/step", "latency_s": "s/image", "speedup": "speed-up", "draft_ms": "draft ms",
    "verify_ms": "verify ms", "accept_ms": "accept ms", "output_tv": "output TV", "frechet": "Fréchet",
    "frechet_diff": "less AR's", "kernel": "kernel", "precision": "prec.",
    "recall": "recall",
}  # fmt: skip
SYMBOLS = {"delta": "δ", "lam": "λ"}
BOUNDED = ("speedup", "output_tv", "frechet", "frechet_diff")


def label_rows(rows: Sequence[Row]) -> list[str]:
    """A short name a row: "AR" for the baseline, else the settings in which the other rows differ."""
    methods = [row for row in rows if not is_baseline(row)]
    differing = [key for key in LABEL_KEYS if len({str(row.get(key)) for row in methods}) > 1]
    return ["AR" if is_baseline(row) else _label(row, differing) for row in rows]


def _label(row: Row, keys: Sequence[str]) -> str:
    parts = [
        str(row[key]) if isinstance(row[key], str) else f"{SYMBOLS.get(key, key)} {row[key]:g}"
        for key in keys
        if row.get(key) is not None
    ]
    return " ".join(parts) or f"{row['acceptance']} {row['tree']}"


def format_table(rows: Sequence[Row]) -> str:
    """The rows as an aligned text table: the fixed columns that hold something, then every other quality metric."""
    headers, lines = _cells(rows)
    widths = [max(len(line[i]) for line in [headers, *lines]) for i in range(len(headers))]
    aligned = [_align(line, widths) for line in [headers, *lines]]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    label, *numbers = line
    return "  ".join([label.ljust(widths[0]), *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True))])


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    accuracies = [key for key in rows[0] if key.endswith("_accuracy")]
    keys = [key for key in [*COLUMNS, *accuracies] if any(row.get(key) is not None for row in rows)]
    headers = ["setting", *(COLUMNS.get(key, key.removesuffix("_accuracy")) for key in keys)]
    labels = label_rows(rows)
    return headers, [[label, *(_cell(row, key) for key in keys)] for label, row in zip(labels, rows, strict=True)]


def _cell(row: Row, key: str) -> str:
    value = row.get(key)
    if value is None:
        return "-"
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    bounds = f" [{low:.2f}, {high:.2f}]" if key in BOUNDED and low is not None and high is not None else ""
    return f"{value:.3g}{bounds}" if abs(value) < 0.1 else f"{value:.2f}{bounds}"


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    """All rows, every key of any of them a column."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(path, text.getvalue())


def write_html(title: str, rows: Sequence[Row], figures: Sequence[Path], path: str | Path) -> None:
    """One self-contained page: the table and the figures."""
    headers, lines = _cells(rows)
    head = "".join(f"<th>{html.escape(header)}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    images = "".join(f'<h2>{figure.stem}</h2><img alt="{figure.stem}" src="{_inline(figure)}">' for figure in figures)
    replace_text(path, PAGE.format(title=html.escape(title), head=head, body=body, images=images, note=_note(rows)))


def _note(rows: Sequence[Row]) -> str:
    methods = [row for row in rows if not is_baseline(row)] or rows
    shared = [
        key
        for key in LABEL_KEYS
        if len({str(row.get(key)) for row in methods}) == 1 and methods[0].get(key) is not None
    ]
    settings = ", ".join(f"{key} {methods[0][key]}" for key in shared)
    return html.escape(
        f"All methods: {settings}. Quality of {methods[0].get('num_images')} images a setting; brackets: 95 % bounds."
    )


def _inline(figure: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(figure.read_bytes()).decode()


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap }}
th, td {{ padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left }} img {{ max-width: 100% }}
</style>
<h1>{title}</h1><p>{note}</p><div class="wide"><table><tr>{head}</tr>{body}</table></div>{images}
</html>
"""
