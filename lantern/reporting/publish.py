"""Writes an evaluation's rows, records, images and summary to its run folder, then publishes: W&B, table, figures."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from lantern.data.image_sets import Images, arrays_of
from lantern.errors import writing
from lantern.evaluation.evaluate import Measurement
from lantern.evaluation.records import copy_missing
from lantern.evaluation.rows import SUMMARY, Row, append_rows, encode, is_baseline, setting_id
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.reporting.merge import add_point, merge_points, point_folders, write_profiles
from lantern.reporting.ranking import Budget, report_best
from lantern.reporting.table import label_rows
from lantern.reporting.wandb_runs import Tracker, group_of, plain_config, shared_config, tell_offline
from lantern.runtime.files import rename_aside, replace_file, replace_text
from lantern.runtime.provenance import read_provenance

log = logging.getLogger(__name__)


def write_measurements(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Writes results.jsonl, the lines that prompts.jsonl lacks, the images, profiles.json (acceptance by depth, rank
    and position), and last summary.json."""
    rows = [m.row for m in measurements]
    append_rows(folder / "results.jsonl", rows)
    for measured in measurements:
        copy_missing(folder, measured.records, measured.folder)
        names, there = measured.batch.file_names, {file.name for file in measured.folder.glob("*.png")}
        if measured.folder.parent == folder and there - {*names}:  # an earlier request's, which would be judged along
            print(f"images of an earlier request: {rename_aside(measured.folder)}")
        write_images(measured.folder, names, measured.images)
    write_profiles(folder, {setting_id(m.row): m.profile for m in measurements if m.profile})
    replace_text(folder / SUMMARY, encode(dict(zip(label_rows(rows), rows, strict=True)), indent=2) + "\n")


def publish(
    run: EvaluationFolder, measurements: Sequence[Measurement], config: Mapping, tracker: Tracker, budget: Budget
) -> None:
    """Shows the results, then tracks them."""
    is_measured = any(measured.is_measured for measured in measurements)
    show(run, is_measured, budget)
    if is_measured:
        track(run, [measured.row for measured in measurements], config, tracker)
    else:
        print(f"\nimages: {measurements[-1].folder}")


def track(run: EvaluationFolder, rows: Sequence[Row], config: Mapping, tracker: Tracker) -> None:
    """To W&B: a single run's method and baseline; a point's method, as the sweep's baseline and table follow later."""
    group = group_of(config["sweep"]["name"], run.sweep or run.path)
    for row in rows[-1 if run.sweep else 0 :]:
        tracker.point(row, plain_config(config) if is_baseline(row) else config, run.path, group, figures=run.path)
    if not run.sweep:
        tell_offline([run.path])


def show(run: EvaluationFolder, is_measured: bool, budget: Budget) -> None:
    """Lists a finished point in its sweep; draws and prints the results of a single run that measured something."""
    if run.sweep:
        add_point(run.sweep, run.path)
    elif is_measured:
        merge_points(run.path, [run.path], "one setting", budget)


def report_sweep(folder: Path, name: str | None, tracker: Tracker, budget: Budget, swept: str = "") -> list[Row]:
    """Merges the points below folder, prints their table and the best of them, tracks the baseline and the summary.
    Returns their rows. swept: the settings that it varies, for the title of a sweep without a name."""
    points = point_folders(folder)
    rows = merge_points(folder, points, f"{name or swept} sweep".lstrip(), budget)
    if not rows:
        log.error("no point of %s has results", folder)
        return rows
    group, best = group_of(name, folder), budget.best(rows)
    report_best(folder, rows, budget, best)
    configs = [record["config"] for point in points if (record := read_provenance(point))]
    for row in filter(is_baseline, rows):
        tracker.point(row, plain_config(shared_config(configs)), folder, group)
    tracker.summary(rows, best, shared_config(configs), folder, group)
    tell_offline([folder])
    return rows


def write_images(folder: Path, names: Sequence[str], images: Images) -> None:
    """As PNG files, each written atomically, since other points of a sweep read those of plain decoding."""
    with writing(f"images to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, pixels in zip(names, arrays_of(images), strict=True):
            replace_file(folder / name, Image.fromarray(pixels).save)
