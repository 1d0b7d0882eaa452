"""Merges the last rows and images of evaluated points into one table, its figures and one page; keeps the list of a
sweep's points and the acceptance profiles of settings."""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from lantern.evaluation.rows import SUMMARY, Row, append_rows, encode, merge_rows, read_rows, read_summary, setting_id
from lantern.metrics.profile import Profile
from lantern.reporting.page.pictures import read_pictures, shared_records
from lantern.reporting.page.write import write_page
from lantern.reporting.plots import draw_grid, draw_pareto
from lantern.reporting.ranking import Budget, check_alike, rank_rows, warn_of_rows_left_out
from lantern.reporting.table import format_table, label_rows, terminal_width, warning_lines, write_csv
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.progress_line import ProgressLine

log = logging.getLogger(__name__)
GRID_PROMPTS = 6
FIGURES = ("pareto.png", "grid.png")
PROFILES = "profiles.json"  # acceptance profiles by setting id
SWEEP = "sweep.jsonl"  # the points that the last sweep of a folder has finished


def begin_sweep(folder: Path) -> None:
    """Empties the list of finished points: results of an earlier sweep in this folder no longer count."""
    replace_text(folder / SWEEP, "")


def add_point(sweep: Path, point: Path) -> None:
    append_rows(sweep / SWEEP, [{"point": point.name}])


def point_folders(folder: Path) -> list[Path]:
    """The points with results of the last sweep in `folder`, by number; all of them where no sweep has listed any."""
    points = [path.parent for path in folder.glob(f"*/{SUMMARY}")]
    if (folder / SWEEP).is_file():
        listed = [row.get("point") for row in read_rows(folder / SWEEP)]
        points = [point for point in points if point.name in listed]
    for point in [point for point in points if not point.resolve().is_relative_to(folder.resolve())]:
        log.warning("%s is a link to another place and is left out; copy the run there", point)
        points.remove(point)
    return sorted(points, key=lambda path: (int(path.name) if path.name.isdigit() else len(points), path.name))


def merge_points(folder: Path, points: Sequence[Path], title: str, budget: Budget) -> list[Row]:
    """Writes results.csv, profiles.json, pareto.png, grid.png and report.html of run folders, and prints the table.
    Returns the ranked rows; none if no point has a row."""
    measured = [row for point in points for row in read_summary(point)]
    merged = merge_rows(measured)
    if not merged:
        return []
    check_alike(merged)
    warn_of_rows_left_out(measured, merged)
    rows = rank_rows(merged, budget)
    write_csv(rows, folder / "results.csv")
    with closing(ProgressLine("report")) as line:
        line.show(0.0, "drawing", None)
        _draw_figures(folder, points, rows)
        profiles = read_profiles(points)
        write_profiles(folder, profiles)
        write_page(folder / "report.html", f"Lantern: {title}", rows, points, profiles, budget.best(rows), budget)
    warned = "".join(f"{line}\n" for line in warning_lines(rows))
    print(f"\n{format_table(rows, terminal_width())}\n\n{warned}{folder}/results.csv\n{folder}/report.html")
    return rows


def _draw_figures(folder: Path, points: Sequence[Path], rows: Sequence[Row]) -> None:
    """Those that can be drawn; an earlier sweep's are removed. The grid shows the first images that all rows share."""
    pareto, grid = (folder / name for name in FIGURES)
    for path in (pareto, grid):
        path.unlink(missing_ok=True)
    draw_pareto(rows, label_rows(rows), pareto)
    labels = dict(zip(map(setting_id, rows), label_rows(rows), strict=True))
    records, shared = shared_records(points, list(labels))
    if shown := read_pictures(folder, records, shared, GRID_PROMPTS):
        columns = {labels[setting]: [pictures[setting] for pictures in shown.values()] for setting in records}
        draw_grid(columns, [prompt for prompt, _ in shown], grid)


def write_profiles(folder: Path, profiles: Mapping[str, Profile]) -> None:
    """A line a setting. Earlier ones of other settings are kept: a run with all images on record has no profile."""
    path = folder / PROFILES
    lines = (f"{json.dumps(key)}: {encode(profile)}" for key, profile in (read_object(path) | dict(profiles)).items())
    replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_profiles(folders: Sequence[Path]) -> dict[str, Profile]:
    """Profiles by setting id. If several folders measured a setting, as all points measure AR, the first counts."""
    profiles: dict[str, Profile] = {}
    for folder in folders:
        profiles = read_object(folder / PROFILES) | profiles
    return profiles
