"""Merges the last rows and images of evaluated points into one table, its figures and one page; prints the table and
the rows' warnings."""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lantern.errors import LanternError
from lantern.evaluation.rows import SUMMARY, Row, is_baseline, merge_rows, read_summary, run_name, setting_id
from lantern.reporting.common_baseline import over_fastest, place_of, timed_together
from lantern.reporting.labels import label_rows
from lantern.reporting.page.pictures import shared_records
from lantern.reporting.page.write import write_page
from lantern.reporting.plots import draw_grid, draw_pareto
from lantern.reporting.profiles import read_profiles, write_profiles
from lantern.reporting.quality_budget import Budget, ranked
from lantern.reporting.row_warnings import warning_lines
from lantern.reporting.table import format_table, write_csv

log = logging.getLogger(__name__)
GRID_PROMPTS = 6
FIGURES = ("pareto.png", "grid.png")
PARTS = {"weights": "target", "tokenizers": "tokenizer"}  # of a model, by the words of an error
EARLIER = 0  # time of change of an earlier sweep's summaries


def merge_points(folder: Path, points: Sequence[Path], title: str, budget: Budget) -> tuple[list[Row], list[Path]]:
    """Writes results.csv, profiles.json, pareto.png, grid.png and report.html of run folders, and prints the table.
    Returns the ranked rows and the figures; both are empty if no point has a row."""
    made = [row for point in points for row in read_summary(point)]
    found = over_fastest(merge_rows(made))
    if not found:
        return [], []
    _tell_doubled(made)
    check_alike(found)
    _tell_places(found)
    rows = ranked(found, budget)
    write_csv(rows, folder / "results.csv")
    figures = _draw_figures(folder, points, rows)
    profiles = read_profiles(points)
    write_profiles(folder, profiles)
    write_page(folder / "report.html", f"Lantern: {title}", rows, points, profiles, budget.best(rows), budget)
    warned = "".join(f"{line}\n" for line in warning_lines(rows))
    print(f"\n{format_table(rows)}\n\n{warned}{folder}/results.csv\n{folder}/report.html")
    return rows, figures


def _tell_doubled(rows: Sequence[Row]) -> None:
    """Warns of points that differ in nothing which identifies a setting, such as metrics: one row is kept of them."""
    counts = Counter(setting_id(row) for row in rows if not is_baseline(row))
    named = {setting_id(row): run_name(row) for row in rows}
    for setting, count in counts.items():
        if count > 1:
            log.warning(
                f"{count} points are the same setting, {named[setting]}, and the table has the last one's row: what "
                "they differ in (speed, quality, metrics, output_tv) is no setting; measure them in other folders"
            )


def _tell_places(rows: Sequence[Row]) -> None:
    """Warns of rows that were timed on different machines or with different threads or versions of torch."""
    timed = [row for row in rows if row.get("speedup") is not None]
    counts, (most, *_) = Counter(map(_place, timed)), map(_place, timed_together(timed) or [{}])
    if len(counts) > 1:
        found = "; ".join(f"{count} with {place}" for place, count in counts.items())
        log.warning(f"the rows were not timed alike ({found}): best.json ranks those with {most} only")


def _place(row: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in place_of(row).items())


def check_alike(rows: Sequence[Row]) -> None:
    """Raises LanternError for rows that were measured with different code, or with different weights or tokenizers of
    one model."""
    first: dict[tuple[str, str], Row] = {}  # by kind and value
    for row in rows:
        weights = ((f"{part} of {row['model']}", f"{key}_hash") for part, key in PARTS.items())
        for kind, key in (("code", "code"), *weights):
            if row.get(key):
                first.setdefault((kind, row[key]), row)
    for kind in dict.fromkeys(kind for kind, _ in first):
        found = sorted(value for same, value in first if same == kind)
        if len(found) > 1:
            names = ", ".join(f"{value} in {run_name(first[kind, value])}" for value in found)
            raise LanternError(f"the rows have different {kind} ({names}); measure all of them again with the same")


def point_folders(folder: Path) -> list[Path]:
    """The folders of the last sweep run in `folder` that hold results, in the order of their numbers."""
    points = [path.parent for path in folder.glob(f"*/{SUMMARY}") if path.stat().st_mtime != EARLIER]
    return sorted(points, key=lambda path: (int(path.name) if path.name.isdigit() else len(points), path.name))


def set_aside(folder: Path) -> None:
    """Marks the results below `folder` as those of an earlier sweep, by a time that no clock shows: the machine's may
    be set back while a sweep runs."""
    for path in folder.glob(f"*/{SUMMARY}"):
        os.utime(path, (EARLIER, EARLIER))


def _draw_figures(folder: Path, points: Sequence[Path], rows: Sequence[Row]) -> list[Path]:
    """Those that can be drawn; an earlier sweep's are removed."""
    for name in FIGURES:
        (folder / name).unlink(missing_ok=True)
    pareto, grid = (folder / name for name in FIGURES)
    figures = [draw_pareto(rows, label_rows(rows), pareto)]
    columns, prompts = same_prompt_images(points, rows)
    if columns:
        figures.append(draw_grid(columns, prompts, grid))
    return [figure for figure in figures if figure]


def same_prompt_images(points: Sequence[Path], rows: Sequence[Row]) -> tuple[dict[str, Tensor], list[str]]:
    """The first images of every row's setting, by its label and in the rows' order, and the prompts they share."""
    labels = dict(zip(map(setting_id, rows), label_rows(rows), strict=True))
    found, shared = shared_records(points, list(labels))
    shown = shared[:GRID_PROMPTS]
    columns = {
        labels[setting]: torch.stack([_read_image(records[key]["file"]) for key in shown])
        for setting, records in found.items()
        if shown
    }
    return columns, [prompt for prompt, _ in shown]


def _read_image(path: Path) -> Tensor:  # [3, H, W] in [0, 1]
    return torch.from_numpy(np.asarray(Image.open(path).convert("RGB")).copy()).permute(2, 0, 1) / 255
