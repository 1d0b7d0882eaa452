"""What an evaluation leaves in its run folder, results first: rows, records, images, a summary, tables and figures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from lantern.errors import LanternError
from lantern.evaluation import Measurement
from lantern.merging import merge_points
from lantern.records import copy_missing
from lantern.report import label_rows
from lantern.results import SUMMARY, append_rows, encode, replace_text
from lantern.tracking import Tracker, group_name, run_name


def write_measurements(folder: Path, measurements: Sequence[Measurement]) -> None:
    """results.jsonl, what prompts.jsonl still lacks, the images, accepted.json (shares of rounds that accepted at least
    1, 2, … draft tokens), and last summary.json, which says that the run is complete."""
    rows = [m.row for m in measurements]
    append_rows(folder / "results.jsonl", rows)
    for measured in measurements:
        origins = {line["setting"]: measured.folder for line in measured.records}
        copy_missing(folder, measured.records, origins)
        write_images(measured.folder, measured.batch.file_names, measured.images)
    accepted = {run_name(measured.row): measured.accepted for measured in measurements}
    replace_text(folder / "accepted.json", json.dumps(accepted) + "\n")
    replace_text(folder / SUMMARY, encode(dict(zip(label_rows(rows), rows, strict=True)), indent=2) + "\n")


def publish(
    folder: Path,
    measurements: Sequence[Measurement],
    tracker: Tracker,
    config: Mapping[str, object],
    sweep: Path | None,
    sweep_name: str | None,
) -> None:
    """Tells W&B, then draws and prints what a single run found; a sweep's baseline and table come at its end."""
    if not any(measured.is_measured for measured in measurements):
        print(f"\nimages: {measurements[-1].folder}")
        return
    labels = label_rows([measured.row for measured in measurements])
    columns = {label: measured.images for label, measured in zip(labels, measurements, strict=True)}
    group = group_name(sweep_name, sweep or folder)
    for measured in measurements[-1:] if sweep else measurements:
        tracker.point(measured.row, config, folder, group, measured.batch.prompts, columns)
    if not sweep:
        merge_points(folder, [folder], "one setting")


def write_images(folder: Path, names: Sequence[str], images: Tensor) -> None:
    """images [N, 3, H, W] in [0, 1] as PNG files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (images.permute(0, 2, 3, 1) * 255).round().clamp(0, 255).byte().numpy()
        for name, picture in zip(names, pixels, strict=True):
            Image.fromarray(picture).save(folder / name)
    except OSError as error:
        raise LanternError(
            f"cannot write images to {folder}: {error.strerror}; choose a folder you may write to"
        ) from error
