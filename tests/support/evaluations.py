"""Evaluations whose configuration does not matter."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.fake_pipeline import Brightness, FakePipeline

from lantern.evaluation.evaluate import Evaluation, Measurement
from lantern.evaluation.request import Request
from lantern.evaluation.rows import RowIdentity
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.reporting.publish import write_measurements


def evaluation(
    folder: Path, prompts: Sequence[str], num_timed: int, num_images: int, batch_size: int, *,
    sweep: Path | None = None, fingerprint: str = "f", protocol: Mapping[str, object] | None = None,
    parts: Mapping[str, object] | None = None, **settings,
) -> Evaluation:  # fmt: skip
    """settings: of the request; parts: metrics, laws and bar."""
    request = Request(prompts, num_timed, num_images, batch_size, **settings)
    identity = RowIdentity(fingerprint, "plain", protocol or {})
    return Evaluation(request, EvaluationFolder(folder, sweep), identity, **(parts or {}))


def measured(
    folder: Path, home: Path, shards: int = 1, shard: int = 0, pipeline: FakePipeline | None = None, images: int = 10
) -> list[Measurement]:
    """Of three prompts, written to a folder. home: the folder whose records are known."""
    settings = {"shards": shards, "shard": shard, "parts": {"metrics": {"brightness": Brightness()}}}
    found = evaluation(folder, ["a", "b", "c"], 6, images, 4, sweep=home, **settings).run(pipeline or FakePipeline())
    write_measurements(folder, found) if found else None
    return found
