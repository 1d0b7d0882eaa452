"""Hydra callbacks around the points of a sweep: they share the cores of the machine, and are reported at the end. Works
on folders and rows; knows nothing about decoding."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig

from lantern.cli.composing import error_of
from lantern.cli.error_messages import at_end, sentence, user_error
from lantern.evaluation.progress import EvaluationBar, open_sweep, sweep_bar
from lantern.evaluation.records import read_provenance
from lantern.evaluation.rows import is_baseline, setting_id
from lantern.reporting.merge import begin_sweep, merge_points, point_folders, read_profiles, same_prompt_images
from lantern.reporting.ranking import Budget, report_best
from lantern.reporting.wandb_runs import Point, Tracker, group_of, plain_config, shared_config, tell_offline
from lantern.runtime.cores import usable_cores

log = logging.getLogger(__name__)
THREADS = "OMP_NUM_THREADS"


class SweepReport(Callback):
    """Merges the points at on_multirun_end, or at the command's end where Hydra leaves that out: a point has failed."""

    def __init__(self) -> None:
        self._sweep: DictConfig | None = None  # None once it is reported
        self._points: int | None = None

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        try:
            instantiate(config.budget)
            if not config.dry_run:
                begin_sweep(Path(config.hydra.sweep.dir))
        except Exception as error:  # found now and not after the sweep
            # SystemExit, because Hydra turns any other exception of a callback into a warning
            raise SystemExit(f"error: {user_error(error) or error}") from error
        if not config.dry_run:
            self._sweep = config
            at_end.append(self.report_failed)
        self._points = number_of_points(config)
        if self._points:
            open_sweep(EvaluationBar(self._points))
        elif trials := config.hydra.sweeper.get("n_trials"):  # of a sweeper that chooses its points as it goes
            open_sweep(EvaluationBar(trials, name="trial"))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: object) -> None:
        if bar := sweep_bar():
            bar.end_point()
        if job_return.status == JobStatus.FAILED and config.hydra.mode.name == "MULTIRUN":
            settings, error = " ".join(job_return.overrides or []), error_of(job_return)
            reason = reason_of(error)  # Hydra shows that of the first failed point alone
            log.error(
                "point %s (%s) failed: %s; the other points go on",
                config.hydra.job.num, settings, reason or repr(error), exc_info=None if reason else error,
            )  # fmt: skip

    def on_multirun_end(self, **_: object) -> None:
        try:
            self._report()
        except Exception as error:
            raise SystemExit(
                f"error: the points are done, their report is not: {user_error(error) or error}"
            ) from error

    def report_failed(self) -> None:
        """Reports a sweep whose end Hydra has left out."""
        try:
            self._report()
        except Exception as error:  # beside the one that ends the program
            log.error("the report of the sweep is not made: %s", user_error(error) or error)

    def _report(self) -> None:
        open_sweep(None)
        config, self._sweep = self._sweep, None
        if config is None or config.study:  # which has no rows
            return
        folder, overrides = Path(config.hydra.sweep.dir), config.hydra.overrides.task
        if any(override.startswith("shard=") for override in overrides):
            told = "the shards' records are in %s; measure them without shards by hydra.run.dir=%s, or hydra.sweep.dir"
            log.info(told + " for several settings", folder, folder)
            return
        report_sweep(folder, config.sweep.name, instantiate(config.tracking), instantiate(config.budget))
        if (left := (self._points or 0) - len(point_folders(folder))) > 0:  # failed, or in a job that goes on
            told = "%d of %d points have no results yet; fix any errors above and start again with hydra.sweep.dir=%s"
            log.warning(told, left, self._points, folder)


class DividedCores(Callback):
    """Sets the number of threads of each process that a launcher starts beside others, unless the user has: with all
    cores for each, they wait for one another."""

    def __init__(self, at_once: int | None = None) -> None:
        """at_once: processes at a time; None: as many as there are points."""
        self._at_once = at_once

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Sets the variable in this process, whose environment the others inherit."""
        if THREADS in os.environ:
            return
        cores = len(usable_cores())
        at_once = min(count for count in (self._at_once, number_of_points(config), cores) if count and count > 0)
        os.environ[THREADS] = str(cores // at_once)


def reason_of(error: BaseException) -> str | None:
    """The sentence of a failure that a user can fix. That of in_one_sentence names settings as the command line does,
    its cause may not."""
    if isinstance(error, CompactHydraException) and str(error).startswith("error: "):
        return str(error).removeprefix("error: ")
    if known := user_error(error):
        return str(known)
    return sentence(error) if isinstance(error, CompactHydraException) else None


def number_of_points(config: DictConfig) -> int | None:
    """The points of the sweep; None under a sweeper that chooses its points as it goes."""
    kind = get_class(config.hydra.sweeper._target_)
    if not hasattr(kind, "split_arguments"):
        return None
    settings = {key: value for key, value in config.hydra.sweeper.items() if key != "_target_"}
    axes = [f"{key}={values}" for key, values in (settings.get("params") or {}).items()]
    hydra = GlobalHydra.instance()
    loader = hydra.config_loader() if hydra.is_initialized() else None  # lists the options of glob(*)
    overrides = OverridesParser.create(loader).parse_overrides([*axes, *config.hydra.overrides.task])
    sweeper = kind(**settings)
    sweeper.config, sweeper.hydra_context = config, loader and SimpleNamespace(config_loader=loader)
    return sum(map(len, sweeper.split_arguments(overrides, None)))


def report_sweep(folder: Path, name: str | None, tracker: Tracker, budget: Budget) -> None:
    """Merges the points below folder, prints their table and the best of them, tracks the baseline and the summary."""
    points = point_folders(folder)
    rows, figures = merge_points(folder, points, f"{name or 'ad hoc'} sweep", budget)
    if not rows:
        log.error("no point of %s has results; see the errors above", folder)
        return
    group, profiles, best = group_of(name, folder), read_profiles(points), budget.best(rows)
    report_best(folder, rows, budget, best)
    configs = [record["config"] for point in points if (record := read_provenance(point))]
    for row in filter(is_baseline, rows):
        tracker.point(Point(row, profiles.get(setting_id(row))), plain_config(shared_config(configs)), folder, group)
    columns, prompts = same_prompt_images(folder, points, rows)
    images = Point({}, prompts=prompts, columns=columns)
    tracker.summary(rows, best, figures, images, shared_config(configs), folder, group)
    tell_offline([folder])
