"""Runs in trackio, for those without an account: it keeps them on this machine (`trackio show`). Numbers alone: tables
and images are in the report. Guarded as W&B is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lantern.evaluation.rows import Row, run_name
from lantern.reporting.ranking import Choice
from lantern.reporting.wandb_runs import FINISH_TIMEOUT_S, Group, Guard, Point, flatten

if TYPE_CHECKING:
    import trackio


def begin(project: str, name: str, group: str, config: Mapping[str, object]) -> "trackio.Run":
    """A run object, on which later calls are made: trackio's module functions find a run only in its own thread."""
    import trackio

    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    return trackio.init(project, name, group, config=flatten(config), **quiet)


class TrackioTracker:
    """In the place of wandb_runs.Tracker: one run for a setting, and one for a sweep with its best setting."""

    def __init__(self, project: str = "lantern") -> None:
        self.project = project

    def point(self, point: Point, config: Mapping[str, object], folder: Path, group: Group) -> None:
        self._send(run_name(point.row), config, point.row, folder, group)

    def summary(
        self, rows: Sequence[Row], best: Choice | None, figures: Sequence[Path], images: Point,
        config: Mapping[str, object], folder: Path, group: Group,
    ) -> None:  # fmt: skip
        found = {} if best is None else {"best": best.corrected}
        self._send(f"{group.name}/summary", config, {"points": len(rows), **found}, folder, group)

    def _send(self, name: str, config: Mapping[str, object], row: Mapping, folder: Path, group: Group) -> None:
        guard = Guard(f"every result is in {folder}", FINISH_TIMEOUT_S, "trackio")
        if run := guard(begin, self.project, name, group.name, config):
            guard(run.log, flatten(row))
            guard(run.finish)
