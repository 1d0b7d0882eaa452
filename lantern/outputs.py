"""What an evaluation leaves in its run folder, results first: rows, records, images, a summary, tables and figures."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from lantern.errors import LanternError
from lantern.evaluation import Measurement
from lantern.report import label_rows
from lantern.results import Row, append_rows, replace_text

MAX_NAME = 60


def write_measurements(folder: Path, measurements: Sequence[Measurement]) -> None:
    """results.jsonl, prompts.jsonl, summary.json and the images, beside each image's record its file."""
    rows = [m.row for m in measurements]
    append_rows(folder / "results.jsonl", rows)
    for measured in measurements:
        names = image_names(measured)
        append_rows(folder / "prompts.jsonl", _with_files(measured, names, folder))
        write_images(measured.folder, names, measured.images)
    summary = {label: m.row | {"accepted": m.accepted} for label, m in zip(label_rows(rows), measurements, strict=True)}
    replace_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


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
        raise LanternError(f"cannot write images to {folder}: {error.strerror}; choose a folder you may write to") from error


def _with_files(measured: Measurement, names: Sequence[str], folder: Path) -> list[Row]:
    files = {}
    for prompt, copy, name in zip(measured.batch.prompts, measured.batch.copies, names, strict=True):
        files[prompt, copy] = os.path.relpath(measured.folder / name, folder)
    return [record | {"image": files.get((record["prompt"], record["copy"]))} for record in measured.records]
