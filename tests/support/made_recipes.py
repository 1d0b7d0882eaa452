"""Folders of drafter trainings with made-up figures, as train.py +sweep=recipe leaves them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import OmegaConf

from lantern.models.checkpoints import save_weights


def write_metrics(path: Path, lengths: dict[int, float], seconds_a_step: float = 0.5) -> None:
    """A line a validation, by step, and a training line before each."""
    keys = ["step", "train/loss", "val/sim_agree_len", "val/sim_accept_len", "val/alpha_1"]
    keys += ["time/training_s", "time/steps"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        for step, length in lengths.items():
            writer.writerow({"step": step, "train/loss": 1.0})
            validated = {"val/sim_agree_len": length, "val/sim_accept_len": length + 1, "val/alpha_1": length / 10}
            spent = {"time/training_s": step * seconds_a_step, "time/steps": step}
            writer.writerow({"step": step} | validated | spent)


def made_run(folder: Path, tokens: float = 5.0, lengths: Sequence[float] = (2.0, 3.0, 2.5)) -> Path:
    """A finished run that validated every 100 steps, and whose drafter commits so many tokens a step."""
    folder.mkdir(parents=True)
    write_metrics(folder / "metrics.csv", {100 * (i + 1): length for i, length in enumerate(lengths)})
    longest = max(lengths)
    figures = {"val/sim_agree_len": longest, "val/sim_accept_len": longest + 1, "val/alpha_1": longest / 10}
    (folder / "exported.json").write_text(json.dumps({"weights": "drafter", "step": 200, "figures": figures}))
    best = {"monitor": "val/sim_agree_len", "mode": "max"}
    config = {"task_name": "drafter", "callbacks": {"best": best}}
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    save_weights(folder / "drafter", {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}, {})
    point = folder / "decoded" / "0"
    point.mkdir(parents=True)
    shared = {"model": "llamagen", "tree": "window", "acceptance": "exact"}
    row = {"method": "refined_jacobi", "drafter": "refined_jacobi", "tokens_per_step": tokens, "draft_ms": 12.0}
    rows = {"AR": shared | {"drafter": "none"}, "refined": shared | row}
    (point / "summary.json").write_text(json.dumps(rows))
    return folder
