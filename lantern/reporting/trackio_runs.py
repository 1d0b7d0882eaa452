"""Runs in trackio, for those without an account: it keeps them on this machine (`trackio show`). Numbers alone: tables
and images are in the report. Guarded as W&B is."""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path

from lantern.evaluation.rows import Row, run_name
from lantern.reporting.ranking import Choice
from lantern.reporting.wandb_runs import FINISH_TIMEOUT_S, Group, Guard, Point, flatten


def call(name: str, *given: object, **settings: object) -> None:
    """One of trackio's functions, without what it prints."""
    with redirect_stdout(StringIO()):
        getattr(import_module("trackio"), name)(*given, **settings)


def begin(project: str, name: str, group: str, config: Mapping[str, object]) -> None:
    """Starts a run, which takes what is logged until the next one starts."""
    call("init", project, name, group, config=flatten(config), embed=False, auto_log_gpu=False, auto_log_cpu=False)


class TrackioTracker:
    """In the place of wandb_runs.Tracker: one run for a setting, and one for a sweep with its best setting."""

    def __init__(self, project: str = "lantern") -> None:
        self.project = project

    def point(self, point: Point, config: Mapping[str, object], folder: Path, group: Group) -> None:
        self._send(run_name(point.row), config, point.row, folder, group)

    def summary(self, rows: Sequence[Row], best: Choice | None, *others: object) -> None:
        *_, folder, group = others
        found = {} if best is None else {"best": best.corrected}
        self._send(f"{group.name}/summary", {}, {"points": len(rows), **found}, folder, group)

    def _send(self, name: str, config: Mapping[str, object], row: Mapping, folder: Path, group: Group) -> None:
        guard = Guard(f"every result is in {folder}", FINISH_TIMEOUT_S, "trackio")
        guard(begin, self.project, name, group.name, config)
        guard(call, "log", flatten(row))
        guard(call, "finish")
