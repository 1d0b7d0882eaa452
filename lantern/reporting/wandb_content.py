"""Results as content of Weights & Biases runs: flat numbers, curves, tables, pictures and artifacts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import wandb
from torch import Tensor

from lantern.evaluation.rows import Row
from lantern.metrics.profile import Profile
from lantern.models.checkpoints import weights_hash

MAX_IMAGES = 32  # in a table; all images are in the run folder
RESULT_FILES = ("*.jsonl", "*.json", "*.csv", "*.png", "report.html")


class Curve(NamedTuple):
    """Points that share their keys; `axis` is one of them."""

    name: str
    axis: str
    points: list[dict[str, float]]


def flatten(row: Mapping[str, object], name: str = "") -> dict[str, object]:
    """The scalars of a row, nested ones by their path, None left out: W&B's panels and filters read only these."""
    scalars: dict[str, object] = {}
    for key, value in row.items():
        path = f"{name}/{key}" if name else str(key)
        if isinstance(value, Mapping):
            scalars |= flatten(value, path)
        elif isinstance(value, str | int | float):
            scalars[path] = value
    return scalars


def curves_of(profile: Profile | None, records: Sequence[Row]) -> list[Curve]:
    """Latency by prompt, then the profile's shares; a curve without points is left out."""
    timed = [record for record in records if record.get("latency_s") is not None]
    points = [{"prompt": i, "latency_s": r["latency_s"], "steps": r["steps"]} for i, r in enumerate(timed)]
    curves = [Curve("timing", "prompt", points)]
    if profile is not None:
        shares = enumerate(count / profile["rounds"] for count in profile["committed"])
        curves.append(Curve("committed", "tokens", [{"tokens": n, "share_of_rounds": s} for n, s in shares if n]))
        for name, axis, first in (("depth", "level", 1), ("rank", "rank", 1), ("entropy", "bits", 0)):
            curves.append(Curve(f"acceptance_by_{name}", axis, _shares(profile[name], axis, first)))
    return [curve for curve in curves if curve.points]


def _shares(tally: Mapping[str, Sequence[int]], axis: str, first: int) -> list[dict[str, float]]:
    counts = zip(tally["judged"], tally["accepted"], strict=True)
    return [
        {axis: i + first, "accepted": accepted / judged, "judged": judged}
        for i, (judged, accepted) in enumerate(counts)
        if judged
    ]


def image_table(prompts: Sequence[str], columns: Mapping[str, Tensor]) -> wandb.Table:
    """The same prompts down, the settings across; columns [N, 3, H, W] in [0, 1]."""
    shown = range(min(MAX_IMAGES, len(prompts), *(len(images) for images in columns.values())))
    lines = [[prompts[i], *(_picture(images[i]) for images in columns.values())] for i in shown]
    return wandb.Table(columns=["prompt", *columns], data=lines)


def _picture(image: Tensor) -> wandb.Image:
    return wandb.Image((image.permute(1, 2, 0) * 255).round().byte().cpu().numpy())


def row_table(rows: Sequence[Row]) -> wandb.Table:
    """All rows, with a column for every scalar of any of them."""
    lines = [flatten(row) for row in rows]
    keys = list(dict.fromkeys(key for line in lines for key in line))
    return wandb.Table(columns=keys, data=[[line.get(key) for key in keys] for line in lines])


def results_artifact(name: str, folder: Path, metadata: Mapping[str, object]) -> wandb.Artifact:
    """The result files of a run folder, images left out."""
    artifact = wandb.Artifact(name, "results", metadata=flatten(metadata))
    for path in sorted({path for pattern in RESULT_FILES for path in folder.glob(pattern)}):
        artifact.add_file(str(path), path.name)
    return artifact


def weights_artifact(folder: Path, kind: str) -> wandb.Artifact:
    """Weights and their configuration, named by their hash: training and evaluations refer to the same version."""
    name = weights_hash(folder)
    artifact = wandb.Artifact(f"{kind}-{name}", kind, metadata={"hash": name})
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        artifact.add_file(str(path), path.name, policy="immutable", skip_cache=True)  # no copy of gigabytes
    return artifact
