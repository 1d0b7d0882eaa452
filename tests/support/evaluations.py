"""Evaluations whose configuration does not matter."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.request import Request
from lantern.evaluation.rows import RowIdentity
from lantern.evaluation.run_folder import EvaluationFolder


def evaluation(
    folder: Path, prompts: Sequence[str], num_timed: int, num_images: int, batch_size: int, *,
    sweep: Path | None = None, fingerprint: str = "f", protocol: Mapping[str, object] | None = None,
    parts: Mapping[str, object] | None = None, **settings,
) -> Evaluation:  # fmt: skip
    """settings: of the request; parts: metrics, laws and bar."""
    request = Request(prompts, num_timed, num_images, batch_size, **settings)
    identity = RowIdentity(fingerprint, "plain", protocol or {})
    return Evaluation(request, EvaluationFolder(folder, sweep), identity, **(parts or {}))
