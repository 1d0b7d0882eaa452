"""What an evaluation leaves in its run folder, results first: rows, records, images, a summary, tables and figures."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from lantern.errors import LanternError
from lantern.evaluation import Measurement
from lantern.merging import merge_points
from lantern.profiles import write_profiles
from lantern.report import label_rows
from lantern.results import SUMMARY, Row, append_rows, encode, replace_text, setting_id
from lantern.tracking import Point, Tracker, group_of

MAX_NAME = 60


def write_measurements(folder: Path, measurements: Sequence[Measurement]) -> None:
    """results.jsonl, prompts.jsonl with the file of each image, the images, profiles.json (where the speed comes from),
    and last summary.json, which says that the run is complete."""
    rows = [m.row for m in measurements]
    append_rows(folder / "results.jsonl", rows)
    for measured in measurements:
        names = image_names(measured)
        append_rows(folder / "prompts.jsonl", _with_files(measured, names, folder))
        write_images(measured.folder, names, measured.images)
    write_profiles(folder, {setting_id(m.row): m.profile for m in measurements if m.profile})
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
    group = group_of(sweep_name, sweep or folder)
    for measured in measurements[-1:] if sweep else measurements:
        point = Point(measured.row, measured.profile, measured.records, measured.batch.prompts, columns)
        tracker.point(point, config, folder, group)
    if not sweep:
        merge_points(folder, [folder], "one setting")


def image_names(measured: Measurement) -> list[str]:
    """A file name an image: its number, its prompt."""
    slugs = [re.sub(r"[^\w]+", "-", prompt.lower()).strip("-")[:MAX_NAME] for prompt in measured.batch.prompts]
    return [f"{i:05d}-{slug}.png" for i, slug in enumerate(slugs)]


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


def _with_files(measured: Measurement, names: Sequence[str], folder: Path) -> list[Row]:
    files = {}
    for prompt, copy, name in zip(measured.batch.prompts, measured.batch.copies, names, strict=True):
        files[prompt, copy] = os.path.relpath(measured.folder / name, folder)
    return [record | {"image": files.get((record["prompt"], record["copy"]))} for record in measured.records]
