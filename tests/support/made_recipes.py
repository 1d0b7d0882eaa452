"""Folders of drafter trainings with made-up figures, as train.py +sweep=recipe leaves them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import OmegaConf

from lantern.evaluation.rows import append_rows, setting_id
from lantern.models.checkpoints import save_weights

WAY = "tokens_per_step/refined_jacobi"
STEPS = {
    "a ring": 50,
    "a cube": 40,
    "sand": 60,
    "wood": 48,
    "marble": 52,
    "a pyramid": 50,
    "a cone": 50,
}  # of a decoded image, by prompt
NUM_TOKENS = 256


def write_metrics(path: Path, lengths: dict[int, float], seconds_a_step: float = 0.5) -> None:
    """A line a validation, by step, and a training line before each."""
    keys = ["step", "train/loss", "val/sim_agree_len", "val/sim_accept_len", "val/alpha_1", "val/agreement_1"]
    keys += ["time/training_s", "time/steps", "time/other_cores"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        for step, length in lengths.items():
            writer.writerow({"step": step, "train/loss": 1.0})
            validated = {"val/sim_agree_len": length, "val/sim_accept_len": length + 1}
            validated |= {"val/alpha_1": length / 10, "val/agreement_1": length / 20}
            spent = {"time/training_s": step * seconds_a_step, "time/steps": step, "time/other_cores": 0.25}
            writer.writerow({"step": step} | validated | spent)


def made_run(folder: Path, tokens: float = 5.0, lengths: Sequence[float] = (2.0, 3.0, 2.5)) -> Path:
    """A finished run that validated every 100 steps, and whose drafter commits so many tokens a step."""
    folder.mkdir(parents=True)
    write_metrics(folder / "metrics.csv", {100 * (i + 1): length for i, length in enumerate(lengths)})
    best = {"monitor": "val/sim_agree_len", "mode": "max"}
    config = {"task_name": "drafter", "callbacks": {"best": best}}
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    save_weights(folder / "drafter", {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}, {})
    point = folder / "decoded" / "0"
    point.mkdir(parents=True)
    row = {"method": "refined_jacobi", "drafter": "refined_jacobi", "tree": "refined_18", "other_cores": 0.5}
    row |= {"verification": "shared_noise", "tokens_per_step": tokens, "draft_ms": 12.0, "seed": 0}
    (point / "summary.json").write_text(json.dumps({"AR": {"drafter": "none"}, "refined": row}))
    lines = [{"prompt": prompt, "copy": 0, "part": "speed", "steps": steps} for prompt, steps in STEPS.items()]
    lines = [line | {"setting": setting_id(row)} for line in [*lines[:1], *lines]]  # the first was timed again
    append_rows(point / "prompts.jsonl", lines)
    return folder
