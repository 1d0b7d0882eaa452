"""Merges the last rows and images of evaluated points into one table, its figures and one page; keeps the list of a
sweep's points and the acceptance profiles of settings."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.evaluation.rows import (
    SUMMARY,
    Row,
    append_rows,
    encode,
    is_baseline,
    merge_rows,
    read_rows,
    read_summary,
    run_name,
    setting_id,
)  # fmt: skip
from lantern.identity import INT8
from lantern.metrics.profile import Profile
from lantern.reporting.page.pictures import read_pictures, shared_records
from lantern.reporting.page.write import write_page
from lantern.reporting.plots import draw_grid, draw_pareto
from lantern.reporting.ranking import BASELINE, Budget, rank_rows, rows_timed_alike
from lantern.reporting.table import format_table, label_rows, terminal_width, warning_lines, write_csv
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.progress_line import ProgressLine

log = logging.getLogger(__name__)
GRID_PROMPTS = 6
FIGURES = ("pareto.png", "grid.png")
HASHED_PARTS = {"weights": "target", "tokenizers": "tokenizer"}  # of a model, by the words of an error
PROFILES = "profiles.json"  # acceptance profiles by setting id
SWEEP = "sweep.jsonl"  # the points that the last sweep of a folder has finished


def begin_sweep(folder: Path) -> None:
    """Empties the list of finished points: results of an earlier sweep in this folder no longer count."""
    replace_text(folder / SWEEP, "")


def add_point(sweep: Path, point: Path) -> None:
    append_rows(sweep / SWEEP, [{"point": point.name}])


def point_folders(folder: Path) -> list[Path]:
    """The folders of the last sweep run in `folder` that hold results, in the order of their numbers; all of them where
    no sweep has listed its points."""
    points = [path.parent for path in folder.glob(f"*/{SUMMARY}")]
    if (folder / SWEEP).is_file():
        listed = [row.get("point") for row in read_rows(folder / SWEEP)]
        points = [point for point in points if point.name in listed]
    for point in [point for point in points if not point.resolve().is_relative_to(folder.resolve())]:
        log.warning("%s is a link to another place and is left out; copy the run there", point)
        points.remove(point)
    return sorted(points, key=lambda path: (int(path.name) if path.name.isdigit() else len(points), path.name))


def merge_points(folder: Path, points: Sequence[Path], title: str, budget: Budget) -> tuple[list[Row], list[Path]]:
    """Writes results.csv, profiles.json, pareto.png, grid.png and report.html of run folders, and prints the table.
    Returns the ranked rows and the figures; both are empty if no point has a row."""
    measured = [row for point in points for row in read_summary(point)]
    merged = merge_rows(measured)
    if not merged:
        return [], []
    check_alike(merged)
    _warn_of_rows_left_out(measured, merged)
    rows = rank_rows(merged, budget)
    write_csv(rows, folder / "results.csv")
    with closing(ProgressLine("report")) as line:
        line.show(0.0, "drawing", None)
        figures = _draw_figures(folder, points, rows)
        profiles = read_profiles(points)
        write_profiles(folder, profiles)
        write_page(folder / "report.html", f"Lantern: {title}", rows, points, profiles, budget.best(rows), budget)
    warned = "".join(f"{line}\n" for line in warning_lines(rows))
    print(f"\n{format_table(rows, terminal_width())}\n\n{warned}{folder}/results.csv\n{folder}/report.html")
    return rows, figures


def _warn_of_rows_left_out(measured: Sequence[Row], merged: Sequence[Row]) -> None:
    counts = Counter(setting_id(row) for row in measured if not is_baseline(row))
    if repeated := counts.total() - len(counts):
        log.warning(
            "%d points repeat the setting of another one, and the table has the last row of each: speed, quality, "
            "metrics and output_tv are no part of a setting; measure such points in other folders", repeated,
        )  # fmt: skip
    methods = [row for row in merged if row.get("speedup") is not None and not is_baseline(row)]
    alike = rows_timed_alike(methods)
    if left := len(methods) - len(alike):
        kinds = [key for key in BASELINE if len({str(row.get(key)) for row in methods}) > 1]
        kind = ", ".join(f"{key} {alike[0].get(key)}" for key in kinds)
        log.warning(
            "%d rows are not ranked: their plain decoding was timed with another %s than that of the others (%s), so "
            "that speed-ups do not compare", left, " or ".join(kinds), kind,
        )  # fmt: skip


def check_alike(rows: Sequence[Row]) -> None:
    first: dict[tuple[str, str], Row] = {}  # by kind and value
    for row in rows:
        weights = ((f"{part} of {row['model']}", f"{key}_hash") for part, key in HASHED_PARTS.items())
        values = [(kind, str(row.get(key) or "").removesuffix(INT8)) for kind, key in (("code", "code"), *weights)]
        values += [("code of " + text.split(" ")[0], text) for text in (row.get("user_code") or "").split(", ") if text]
        for kind, value in values:
            if value:
                first.setdefault((kind, value), row)
    for kind in dict.fromkeys(kind for kind, _ in first):
        values = sorted(value for same, value in first if same == kind)
        if len(values) > 1:
            names = ", ".join(f"{value} in {run_name(first[kind, value])}" for value in values)
            raise LanternError(f"the rows have different {kind} ({names}); measure all of them again with the same")


def _draw_figures(folder: Path, points: Sequence[Path], rows: Sequence[Row]) -> list[Path]:
    """Those that can be drawn; an earlier sweep's are removed."""
    for name in FIGURES:
        (folder / name).unlink(missing_ok=True)
    pareto, grid = (folder / name for name in FIGURES)
    figures = [draw_pareto(rows, label_rows(rows), pareto)]
    columns, prompts = same_prompt_images(folder, points, rows)
    if columns:
        figures.append(draw_grid(columns, prompts, grid))
    return [figure for figure in figures if figure]


def same_prompt_images(
    folder: Path, points: Sequence[Path], rows: Sequence[Row]
) -> tuple[dict[str, Tensor], list[str]]:
    """The first images of every row's setting [N, 3, H, W] in [0, 1], by its label, and the prompts they share. folder:
    that of the report, with all points."""
    labels = dict(zip(map(setting_id, rows), label_rows(rows), strict=True))
    records, shared = shared_records(points, list(labels))
    shown, columns = read_pictures(folder, records, shared, GRID_PROMPTS), {}
    for setting in records if shown else ():
        pixels = np.stack([np.asarray(pictures[setting]) for pictures in shown.values()])
        columns[labels[setting]] = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    return columns, [prompt for prompt, _ in shown]


def write_profiles(folder: Path, profiles: Mapping[str, Profile]) -> None:
    """A line a setting. Earlier profiles of other settings are kept: a run that finds all its images on record decodes
    nothing and has no profile."""
    path = folder / PROFILES
    lines = (f"{json.dumps(key)}: {encode(profile)}" for key, profile in (read_object(path) | dict(profiles)).items())
    replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_profiles(folders: Sequence[Path]) -> dict[str, Profile]:
    """Profiles by setting id. If several folders measured a setting, as all points measure AR, the first counts."""
    profiles: dict[str, Profile] = {}
    for folder in folders:
        profiles = read_object(folder / PROFILES) | profiles
    return profiles
