"""Hydra callbacks that count and report the points of a sweep. What needs torch is imported behind the bar."""

import logging
import signal
import sys
from collections.abc import Callable
from itertools import chain
from math import inf
from pathlib import Path
from statistics import fmean
from time import monotonic
from types import SimpleNamespace
from typing import ClassVar

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.composing import error_of, expand_home
from lantern.cli.error_messages import at_end, user_error
from lantern.evaluation.progress import EvaluationBar, open_bar
from lantern.runtime.files import EXPORTED, read_object
from lantern.runtime.progress_line import ProgressLine, Shown

log = logging.getLogger(__name__)
Ahead = Callable[[str, float | None], float | None]  # a stage's title and time left -> that of its training, if known


class SweepReport(Callback):
    """Merges the points at on_multirun_end, or at the command's end where Hydra leaves that out: a point has failed."""

    def __init__(self) -> None:
        self._sweep: DictConfig | None = None  # None once it is reported
        self._points, self._ended = 0, ""

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        self._points, name = counted(config)
        if self._points:
            open_bar(EvaluationBar(self._points, name=name))
        from lantern.cli.run_setting import request_of
        from lantern.reporting.merge import begin_sweep

        try:
            instantiate(config.budget)
            points, loader = points_of(config), _loader()  # none where a sweeper chooses them as it goes
            expand_home(first := loader.load_sweep_config(config, points[0]) if points and loader else config)
            request_of(first)
            if not config.dry_run:
                begin_sweep(Path(config.hydra.sweep.dir))
        except Exception as error:  # found now, once, and not in each point or after the sweep
            open_bar(None)
            # SystemExit, because Hydra turns any other exception of a callback into a warning
            raise SystemExit(f"error: {user_error(error) or error}") from error
        if not config.dry_run:
            self._sweep = config
            at_end.append(self.report_failed)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._end)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: object) -> None:
        if bar := EvaluationBar.of_process:
            bar.end_point()
        if job_return.status == JobStatus.FAILED and config.hydra.mode.name == "MULTIRUN":
            settings, error = " ".join(job_return.overrides or []), error_of(job_return)
            reason = user_error(error)  # Hydra shows that of the first failed point alone
            goes_on = hasattr(get_class(config.hydra.sweeper._target_), "split_arguments")  # optuna ends
            told = config.hydra.job.num, settings, reason or repr(error), "; the other points go on" * goes_on
            log.error("point %s (%s) failed: %s%s", *told, exc_info=None if reason else error)

    def on_multirun_end(self, **_: object) -> None:
        try:
            self._report()
        except Exception as error:
            reason = user_error(error) or error
            raise SystemExit(f"error: the points are done, their report is not: {reason}") from error

    def _end(self, number: int, _: object) -> None:
        self._ended = "ended by SIGTERM; "
        raise SystemExit(128 + number)

    def report_failed(self) -> None:
        """Reports a sweep whose end Hydra has left out."""
        try:
            self._report()
        except Exception as error:  # beside the one that ends the program
            log.error("the report of the sweep is not made: %s", user_error(error) or error)

    def _report(self) -> None:
        from lantern.evaluation.rows import is_baseline
        from lantern.reporting.merge import point_folders
        from lantern.reporting.publish import report_sweep

        open_bar(None)
        config, self._sweep = self._sweep, None
        if config is None or config.study:  # which has no rows
            return
        folder, overrides = Path(config.hydra.sweep.dir), config.hydra.overrides.task
        if any(override.startswith("shard=") for override in overrides):
            told = "the shards' records are in %s; measure them without shards by hydra.run.dir=%s, or hydra.sweep.dir"
            log.info(told + " for several settings", folder, folder)
            return
        tracker, varied = instantiate(config.tracking), [one for one in _overrides(config) if one.is_sweep_override()]
        swept = ", ".join(dict.fromkeys(one.key_or_group for one in varied))  # those of a search included
        rows = report_sweep(folder, config.sweep.name, tracker, budget := instantiate(config.budget), swept)
        is_search = not hasattr(get_class(config.hydra.sweeper._target_), "split_arguments")
        tried = [row for row in rows if not is_baseline(row)]
        if is_search and tried and (metric := config.optimized_metric):
            told = f"by {metric} as measured, chance included; the fastest setting is by its lower bound"
            if all(map(budget.excess, tried)):
                told = "beyond the budget, as is every trial: its value is minus by how much"
            print(f"the sweeper's best is {told}")
        if (left := self._points - len(point_folders(folder))) > 0:  # failed, or in a job that goes on
            is_ended = self._ended or sys.exc_info()[0] is KeyboardInterrupt
            told = "%spoints without results: %d of %d; %sstart again with hydra.sweep.dir=%s"
            log.warning(told, self._ended, left, self._points, "" if is_ended else "fix any errors above and ", folder)


class Points(Callback):
    """Of the trainings of this process: the lines of their stages, such as tables, show the share and the time left of
    the whole training, or of all points of a multirun, which ends with a list of them."""

    here: ClassVar["Points | None"] = None
    began: ClassVar[float | None] = None  # when the command in this process did, or its point

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._since, self._took = clock, 0.0, list[float]()  # of each point that has ended
        self._number, self._total, self._name, self._share = 0, 0, "point", 0.0  # the last one of this point
        self.ahead: Ahead | None = None  # of the training that has begun
        self._sweep: Path | None = None  # the folder of a multirun whose points are not listed yet

    def __getstate__(self) -> dict[str, object]:
        """A job that is requeued takes it along, without its training."""
        return vars(self) | {"ahead": None}

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        self._total, self._name = counted(config)
        self._sweep, Points.here = Path(config.hydra.sweep.dir), self
        at_end.append(self.on_multirun_end)  # which Hydra leaves out where a point has failed

    def on_multirun_end(self, **_: object) -> None:
        ProgressLine.whole = Points.here = None
        folder, self._sweep = self._sweep, None
        if folder and (lines := ranking(folder)):
            print("\n".join(lines))

    def on_job_start(self, **_: object) -> None:
        if Points.here is not self:  # a single run, or a launcher's copy in a process for a point alone
            self._total, Points.here = 0, self
            at_end.append(self.on_multirun_end)
        ProgressLine.whole, Points.began = self.of_all, self._clock()
        self._number, self._since, self._share, self.ahead = self._number + 1, Points.began, 0.0, None

    def on_job_end(self, **_: object) -> None:
        if self.ahead:  # else it was finished before
            self._took.append(self._clock() - self._since)

    def of_all(self, title: str, share: float, words: str, left_s: float | None) -> Shown:
        """What the line of a stage shows -> that of all. Points not begun take the mean of those ended, or of this."""
        if not self.ahead and not self._total:
            return title, share, words, left_s, "left"
        name = f"{self._name} {self._number} of {self._total}" if self._total else "training"
        words = words if title == "training" else f"{title}, {words}"
        all_s = self.ahead(title, left_s) if self.ahead else None
        if all_s is not None:
            point_s = (passed := self._clock() - self._since) + all_s
            self._share = max(self._share, passed / max(1.0, point_s))
            all_s += max(0, self._total - self._number) * (fmean(self._took) if self._took else point_s)
        share = (self._number - 1 + self._share) / self._total if self._total else self._share
        return name, min(1.0, share), words, *((left_s, "left of it") if all_s is None else (all_s, "left"))


def ranking(sweep: Path) -> list[str]:
    """A title and a line for each training of a multirun's folder that has exported weights: the figure that they were
    chosen by, best first, its settings that differ from the others', and its run folder. Empty where there are none."""
    ended = {path.parent: read_object(path).get("figures", {}) for path in sorted(sweep.rglob(EXPORTED))}
    if not ended:
        return []
    best = OmegaConf.select(OmegaConf.load(next(iter(ended)) / "config.yaml"), "callbacks.best") or {}
    name, sign = best.get("monitor"), -1 if best.get("mode") == "max" else 1
    given = {folder: OmegaConf.load(folder / ".hydra" / "overrides.yaml") for folder in ended}
    lines = [f"{len(ended)} points, best {name} first:" if name else f"{len(ended)} points:"]
    for folder in sorted(ended, key=lambda each: sign * ended[each].get(name, sign * inf)):
        figure = f"{ended[folder][name]:.4g}" if name in ended[folder] else ""  # of a step that was not validated
        own = [text for text in given[folder] if not all(text in others for others in given.values())]
        lines.append("  ".join([f"{figure:>8}", *own, str(folder)]))
    return lines


def counted(config: DictConfig) -> tuple[int, str]:
    """The number of points, or of trials where a sweeper chooses them as it goes, 0 if unknown; and the name of one."""
    points = points_of(config)
    return (len(points), "point") if points else (config.hydra.sweeper.get("n_trials") or 0, "trial")


def points_of(config: DictConfig) -> list[list[str]]:
    """The overrides of each point of the sweep; none under a sweeper that chooses its points as it goes."""
    kind = get_class(config.hydra.sweeper._target_)
    if not hasattr(kind, "split_arguments"):
        return []
    sweeper = kind(**{key: value for key, value in config.hydra.sweeper.items() if key != "_target_"})
    loader = _loader()
    sweeper.config, sweeper.hydra_context = config, loader and SimpleNamespace(config_loader=loader)
    return list(chain.from_iterable(sweeper.split_arguments(_overrides(config), None)))


def _overrides(config: DictConfig) -> list[Override]:
    """The sweeper's axes, then what the command gave."""
    axes = [f"{key}={values}" for key, values in (config.hydra.sweeper.get("params") or {}).items()]
    return OverridesParser.create(_loader()).parse_overrides([*axes, *config.hydra.overrides.task])  # loader: glob(*)


def _loader() -> ConfigLoader | None:
    hydra = GlobalHydra.instance()
    return hydra.config_loader() if hydra.is_initialized() else None
