"""A sweep's start and end, as a Hydra callback: rejects settings that the sweep cannot vary, then reports its points.
Works on folders and rows; knows nothing about decoding."""

import atexit
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig

from lantern.cli.error_messages import sentence, user_error
from lantern.cli.hydra_private import error_of
from lantern.evaluation.progress import EvaluationBar, open_sweep, sweep_bar
from lantern.evaluation.rows import is_baseline, setting_id
from lantern.reporting.merge import begin_sweep, merge_points, point_folders, read_profiles, same_prompt_images
from lantern.reporting.ranking import Budget, report_best
from lantern.reporting.wandb_runs import Point, Tracker, group_of

log = logging.getLogger(__name__)


class SweepReport(Callback):
    """Merges the points at on_multirun_end, or at exit where a point has failed and Hydra does not call that."""

    def __init__(self) -> None:
        self._sweep: DictConfig | None = None  # None once it is reported
        self._points: int | None = None
        self._failed_by_user = False  # a point ended with a sentence, and would again

    def __getstate__(self) -> dict[str, object]:
        """For the processes of a launcher, which make points and report nothing."""
        return {"_sweep": None, "_points": None, "_failed_by_user": False}

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Ends the program, with one sentence, if the sweep's axis does not exist under the chosen settings."""
        problem = find_conflict(
            config.sweep.name, config.sweep.requires, config.hydra.runtime.choices, config.hydra.overrides.task
        )
        if problem:
            raise SystemExit(problem)  # Hydra turns any other exception of a callback into a warning
        try:
            instantiate(config.budget)
            if not config.dry_run:
                begin_sweep(Path(config.hydra.sweep.dir))
        except Exception as error:  # found now and not after the sweep
            raise SystemExit(f"error: {user_error(error) or error}") from error
        if not config.dry_run:
            self._sweep = config
            atexit.register(self._report_at_exit)
        if points := number_of_points(config):
            self._points = points
            open_sweep(EvaluationBar(points))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: object) -> None:
        if bar := sweep_bar():
            bar.end_point()
        atexit.unregister(self._report_at_exit)
        atexit.register(self._report_at_exit)  # before the exit handlers that the points registered, such as W&B's
        if job_return.status == JobStatus.FAILED and config.hydra.mode.name == "MULTIRUN":
            settings, error = " ".join(job_return.overrides or []), error_of(job_return)
            reason = reason_of(error)  # Hydra shows that of the first failed point alone
            self._failed_by_user |= reason is not None
            log.error(
                "point %s (%s) failed: %s; the other points go on",
                config.hydra.job.num, settings, reason or repr(error), exc_info=None if reason else error,
            )  # fmt: skip

    def on_multirun_end(self, **_: object) -> None:
        try:
            self._report()
        except Exception as error:  # which Hydra would turn into a warning
            raise SystemExit(
                f"error: the points are done, their report is not: {user_error(error) or error}"
            ) from error

    def _report_at_exit(self) -> None:
        try:
            self._report()
        except Exception as error:  # of which Python would print the traceback
            log.error("the report of the sweep is not made: %s", user_error(error) or error)

    def _report(self) -> None:
        open_sweep(None)
        if self._sweep is None or self._sweep.study:  # which has no rows
            return
        config, self._sweep = self._sweep, None
        folder = Path(config.hydra.sweep.dir)
        if _is_sharded(config.hydra.overrides.task):
            several = (number_of_points(config, without="shard=") or 1) > 1
            how = "the same command with hydra.sweep.dir" if several else "hydra.run.dir"
            log.info("the shards' records are in %s; measure them by %s=%s without shards", folder, how, folder)
            return
        parts = (instantiate(config[part]) for part in ("tracking", "budget"))
        report_sweep(folder, config.sweep.name, *parts)
        if (left := (self._points or 0) - len(point_folders(folder))) > 0:  # failed, or in a job that goes on
            fix = "fix the errors above, then start the command"
            remedy = fix if self._failed_by_user else "start the same command"
            log.warning(
                "%d of %d points have no results yet; %s again with hydra.sweep.dir=%s",
                left, self._points, remedy, folder,
            )  # fmt: skip


def reason_of(error: BaseException) -> str | None:
    """The sentence of a failure that a user can fix."""
    if isinstance(error, CompactHydraException) and str(error).startswith("error: "):
        return str(error).removeprefix("error: ")  # names settings as the command line does, its cause may not
    if known := user_error(error):
        return str(known)
    return sentence(error).removeprefix("error: ") if isinstance(error, CompactHydraException) else None


def number_of_points(config: DictConfig, without: str | None = None) -> int | None:
    """The points of the sweep; None under a sweeper that chooses its points as it goes. without: how the overrides
    begin that do not count."""
    kind = get_class(config.hydra.sweeper._target_)
    if not hasattr(kind, "split_arguments"):
        return None
    settings = {key: value for key, value in config.hydra.sweeper.items() if key != "_target_"}
    axes = [f"{key}={values}" for key, values in (settings.get("params") or {}).items()]
    hydra = GlobalHydra.instance()
    loader = hydra.config_loader() if hydra.is_initialized() else None  # lists the options of glob(*)
    given = [override for override in config.hydra.overrides.task if not (without and override.startswith(without))]
    overrides = OverridesParser.create(loader).parse_overrides([*axes, *given])
    return sum(map(len, kind(**settings).split_arguments(overrides, None)))


def _is_sharded(overrides: Sequence[str]) -> bool:
    return any(override.startswith("shard=") for override in overrides)


def find_conflict(
    name: str | None, requires: Mapping[str, str], choices: Mapping[str, str], overrides: Sequence[str]
) -> str | None:
    """A sentence naming the config group that contradicts the sweep, or None."""
    for group, option in requires.items():
        given = [o.split("=", 1)[1] for o in overrides if o.startswith(f"{group}=")]
        chosen = given[-1] if given else choices[group]
        if chosen != option:
            return (
                f"error: +sweep={name} varies a setting of {group}={option} and cannot run with {group}={chosen}; "
                f"leave {group}={chosen} out"
            )
    return None


def report_sweep(folder: Path, name: str | None, tracker: Tracker, budget: Budget) -> None:
    """Merges the points below folder, prints their table and the best of them, tracks the baseline and the summary."""
    points = point_folders(folder)
    rows, figures = merge_points(folder, points, f"{name or 'ad hoc'} sweep", budget)
    if not rows:
        log.error("no point of %s has results; see the errors above", folder)
        return
    group, profiles, best = group_of(name, folder), read_profiles(points), budget.best(rows)
    report_best(folder, rows, budget, best)
    for row in filter(is_baseline, rows):
        tracker.point(Point(row, profiles.get(setting_id(row))), {}, folder, group)
    columns, prompts = same_prompt_images(points, rows)
    tracker.summary(rows, best, figures, Point({}, prompts=prompts, columns=columns), folder, group)
