"""What a comparison of drafter recipes measured, read from the folders of its training runs: a row for each drafter."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from omegaconf import OmegaConf

from lantern.evaluation.records import RECORDS, current_lines
from lantern.evaluation.rows import Row, is_baseline, read_rows, read_summary, setting_id
from lantern.metrics.intervals import Interval, total_ratio
from lantern.models.checkpoints import load_weights, weights_file
from lantern.reporting.merge import point_folders

DRAFTER, DECODED = "drafter", "decoded"  # subfolders of a run: weights, and the sweep that decoded with them
EVALUATE_WITH = "evaluate_with.json"  # a run's settings of evaluate.py that its target needs
VALIDATION, TIME = "val/", "time/"
TOKENS, DRAFT_MS, OTHERS = "tokens_per_step/", "draft_ms/", "other_cores/"  # and the name of a way to decode


def run_folders(sweep: Path) -> list[Path]:
    """The finished training runs of a sweep, named recipe-seed."""
    return sorted(path.parent for path in sweep.glob(f"*-*/{DRAFTER}") if weights_file(path).is_file())


def needed_settings(folder: Path) -> list[str]:
    """EVALUATE_WITH of a run; none of one that has no such file."""
    path = folder / EVALUATE_WITH
    return json.loads(path.read_text()) if path.is_file() else []


def name_of(folder: Path) -> tuple[str, int]:
    """Recipe and seed of a run."""
    recipe, _, seed = folder.name.rpartition("-")
    return recipe, int(seed)


def validations(folder: Path) -> list[dict[str, float]]:
    """The validations of a run, by step. Where it was killed and resumed, those of the later part count."""
    earlier = sorted(folder.glob("metrics-*.csv"), key=lambda path: int(path.stem.rpartition("-")[2]))
    found: list[dict[str, float]] = []
    for path in [*earlier, folder / "metrics.csv"]:
        if new := list(_validations_in(path)):
            found = [line for line in found if line["step"] < new[0]["step"]] + new
    return found


def _validations_in(path: Path) -> Iterator[dict[str, float]]:
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if any(value and key.startswith(VALIDATION) for key, value in line.items()):
                yield {key: float(value) for key, value in line.items() if value}


def run_row(folder: Path) -> Row:
    """Size, time, the validation whose weights were kept, and what decoding with them took."""
    recipe, seed = name_of(folder)
    found = validations(folder)
    last, best = found[-1], kept_validation(folder)
    row: Row = {
        "recipe": recipe,
        "seed": seed,
        "parameters": sum(value.numel() for value in load_weights(folder / DRAFTER)[0].values()),
        "steps": last[f"{TIME}steps"],
        "step_s": last[f"{TIME}training_s"] / last[f"{TIME}steps"],
        "other_cores": last[f"{TIME}other_cores"],
    }
    row |= {key.removeprefix(VALIDATION): value for key, value in best.items() if key.startswith(VALIDATION)}
    for point in point_folders(folder / DECODED):
        for decoded in read_summary(point):
            if not is_baseline(decoded):
                row |= _decoded(point, decoded)
    return row


def kept_validation(folder: Path) -> dict[str, float]:
    """The validation of the step whose weights a run exported."""
    found = validations(folder)
    best = OmegaConf.load(folder / "config.yaml").callbacks.best
    if best is None:
        return found[-1]
    return (max if best.mode == "max" else min)(found, key=lambda line: line[best.monitor])


def _decoded(point: Path, row: Row) -> Row:
    """Tokens a step with bounds over prompts, the drafter's milliseconds a round, and cores used by others."""
    name = row.get("method") or f"{row['tree']}_{row['verification']}"
    values = {f"{TOKENS}{name}": row["tokens_per_step"], f"{DRAFT_MS}{name}": row["draft_ms"]}
    values |= {f"{OTHERS}{name}": row["other_cores"]} if row["other_cores"] is not None else {}
    lines = [line for line in current_lines(read_rows(point / RECORDS)) if line.get("setting") == setting_id(row)]
    by_image = {(line["prompt"], line["copy"]): line["steps"] for line in lines}  # timed again: the last one
    steps = list(by_image.values())
    if len(steps) > 1:  # every image has as many tokens
        images = total_ratio([1.0] * len(steps), steps)  # a step; their bounds are those of the tokens but for a factor
        tokens = Interval(*(row["tokens_per_step"] * number / images.value for number in images))
        values |= tokens.keys(f"{TOKENS}{name}")
    return values
