"""A row measured again with another seed and batch size, on the shipped weights, stays within its intervals."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from lantern.evaluation.rows import Row, read_rows

SETTING = ["acceptance=lantern", "acceptance.delta=0.1", "tree=chain"]
SIZES = ["speed.num_prompts=0", "quality.num_images=64", "metrics.fidelity.num_references=256"]
MEASURED = (
    "frechet", "kernel", "precision", "recall", "texture_accuracy", "shape_accuracy", "colour_accuracy", "all_accuracy",
    "frechet_diff", "kernel_diff", "precision_loss", "recall_loss", "all_accuracy_loss", "output_tv", "code_distance",
)  # fmt: skip


def measured(folder: Path, *overrides: str) -> Row:
    own = [f"hydra.run.dir={folder}", "tracking.mode=disabled", *overrides]
    command = [sys.executable, "evaluate.py", *SETTING, *SIZES, *own]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_rows(folder / "results.jsonl")[-1]


def bounded(row: Row, key: str) -> bool:
    """A figure at its ceiling (recall of few images) proves nothing, so it has no interval to stay within."""
    return row[f"{key}_low"] is not None and row[f"{key}_high"] is not None


def apart(one: Row, other: Row, key: str) -> float:
    """In half widths of the interval of the difference of two independent measurements."""
    sides = [max(row[f"{key}_high"] - row[key], row[key] - row[f"{key}_low"]) for row in (one, other)]
    width = (sides[0] ** 2 + sides[1] ** 2) ** 0.5
    return 0.0 if one[key] == other[key] else abs(one[key] - other[key]) / width


@pytest.mark.full
def test_repeating_a_row_with_another_seed_and_batch_size_stays_within_its_intervals(tmp_path):
    """Catches an image that depends on its batch, intervals that are too narrow, and a seed that is not used. Of 15
    figures at 95 % one may well be outside; two, and one by far, are not chance."""
    one = measured(tmp_path / "one", "seed=0", "batch_size=16")
    other = measured(tmp_path / "other", "seed=1", "batch_size=32")
    compared = [key for key in MEASURED if bounded(one, key) and bounded(other, key)]
    assert set(MEASURED) - set(compared) <= {"recall", "recall_loss"}
    found = {key: apart(one, other, key) for key in compared}
    print({key: (round(one[key], 4), round(other[key], 4), round(ratio, 2)) for key, ratio in found.items()})
    assert one["frechet"] != other["frechet"]
    assert one["tokens_per_step"] == pytest.approx(other["tokens_per_step"], rel=0.05)
    assert sum(ratio > 1 for ratio in found.values()) <= 1
    assert max(found.values()) < 1.6
