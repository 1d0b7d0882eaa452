"""Pages of made-up sweeps."""

import json
from pathlib import Path
from types import SimpleNamespace

from hydra.types import RunMode
from support.evaluations import evaluation
from support.fake_pipeline import FakePipeline

from lantern.reporting.merge import SWEEP, add_point, merge_points, point_folders
from lantern.reporting.publish import write_measurements
from lantern.reporting.ranking import Budget
from lantern.runtime.files import replace_text
from lantern.runtime.overrides import command_of
from lantern.runtime.provenance import PROVENANCE

PROMPTS = ["a red ring", "</script><img src=x onerror=alert(1)>", "sand & <b>stone</b>"]


class SharedNoisePipeline(FakePipeline):
    def describe(self):
        return super().describe() | {"verification": "shared_noise"}


def record_overrides(point: Path, overrides: list[str], mode: str, config_dir: Path | None = None) -> None:
    """The command in a run's provenance, from what Hydra knows of it."""
    given = [{"path": str(config_dir), "schema": "file", "provider": "command-line"}] if config_dir else []
    runtime = {"cwd": str(point.parent), "config_sources": given}
    hydra = SimpleNamespace(mode=RunMode[mode], runtime=runtime, overrides=SimpleNamespace(task=overrides))
    replace_text(point / PROVENANCE, json.dumps({"command": command_of(hydra)}))


def made_sweep(folder: Path) -> Path:
    """δ 0.01 and 0.1 under shared noise, 0.4 under ratio verification, with made-up speeds and distances."""
    deltas = {0.01: SharedNoisePipeline, 0.1: SharedNoisePipeline, 0.4: FakePipeline}
    for point in made_points(folder, PROMPTS, deltas):
        delta = list(deltas)[int(point.name)]
        record_overrides(point, [f"acceptance.delta={delta}", "prompts=[a red ring]"], "RUN")
    merge_points(folder, point_folders(folder), "made-up sweep", Budget({"frechet": 0.1}))
    return folder


def made_points(folder: Path, prompts: list[str], deltas: dict[float, type]) -> list[Path]:
    """The points of a sweep as evaluate.py leaves them, with made-up distances; deltas: with their pipelines."""
    points = [folder / str(number) for number in range(len(deltas))]
    for point, (delta, kind) in zip(points, deltas.items(), strict=True):
        pipeline = kind(delta=delta, latency_s=0.6 - delta)
        measured = evaluation(point, prompts, 2, 3, 4, sweep=folder).run(pipeline)
        for m in measured:
            value = 5.0 if m.row["drafter"] == "none" else 5 + 10 * delta
            m.row.update(frechet=value, frechet_low=value - 1, frechet_high=value + 1, shape_accuracy=0.9)
            if m.row["drafter"] != "none":
                m.row.update(frechet_diff=value - 5, frechet_diff_low=value - 6, frechet_diff_high=value - 4)
        write_measurements(point, measured)
        if (folder / SWEEP).is_file():
            add_point(folder, point)
    return points
