"""The end of python train.py +sweep=recipe, as a Hydra callback: decodes with every drafter that was trained, then
reports the recipes in one table, curves and a page."""

import atexit
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lantern.cli.error_messages import user_error
from lantern.cli.subcommand import run_command
from lantern.cli.sweep_callback import find_conflict, reason_of
from lantern.errors import LanternError
from lantern.reporting.page.commands import config_dir
from lantern.reporting.wandb_runs import Tracker, group_of
from lantern.runtime.overrides import override

log = logging.getLogger(__name__)
NAME, VARIED = "recipe", ("recipe", "seed")
FORWARDED = re.compile(r"[+~]*((model|sampling|paths)[.@=]|(device|dtype)=)")  # overrides that describe the target
AXES = {"minutes": "minutes of training, validation left out", "time/steps": "steps"}
FIGURES = {"val/sim_accept_len": "length, ratio verification", "val/sim_agree_len": "length, shared noise"}


def group_name(folder: str) -> str:
    """The W&B group of a sweep's training runs and its summary."""
    return group_of(NAME, folder).name


class RecipeReport(Callback):
    """Decodes and reports at on_multirun_end, or at exit where a point has failed and Hydra does not call that."""

    def __init__(self) -> None:
        self._sweep: DictConfig | None = None  # None once it is reported

    def __getstate__(self) -> dict[str, None]:
        """For the processes of a launcher, which train points and report nothing."""
        return {"_sweep": None}

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Ends the program, with one sentence, for a drafter that the recipes' decoding does not load, and for points
        that would share a folder."""
        chosen, given = config.hydra.runtime.choices, config.hydra.overrides.task
        if problem := find_conflict(config.sweep.name, config.sweep.requires, chosen, given) or _other_axis(given):
            raise SystemExit(problem)  # Hydra turns any other exception of a callback into a warning
        self._sweep = config
        atexit.register(self._report_at_exit)

    def on_job_start(self, **_: object) -> None:
        atexit.unregister(self._report_at_exit)  # a signal during a point ends the sweep, to be continued

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: object) -> None:
        atexit.register(self._report_at_exit)
        if job_return.status == JobStatus.FAILED:
            error = job_return._return_value  # its property raises it
            log.error("%s failed (%s); the other points go on", config.hydra.sweep.subdir, reason_of(error) or error)

    def on_multirun_end(self, **_: object) -> None:
        if ending := self._ended():  # an exception of a callback, which Hydra would turn into a warning
            raise SystemExit(ending)

    def _report_at_exit(self) -> None:
        if getattr(sys, "last_type", None) is not KeyboardInterrupt and (ending := self._ended()):
            print(ending, file=sys.stderr)

    def _ended(self) -> str | None:
        """Decodes and reports once; returns what went wrong."""
        if self._sweep is None:
            return None
        folder = self._sweep.hydra.sweep.dir
        try:
            failed = self._report()
        except Exception as error:
            return f"error: the drafters are trained, their report is not made: {user_error(error) or error}"
        if not failed:
            return None
        return (
            f"error: the drafters {', '.join(failed)} could not be decoded with, see above; started again with "
            f"hydra.sweep.dir={folder}, the sweep continues from here"
        )

    def _report(self) -> list[str]:
        """Returns the names of the runs that could not be decoded with."""
        config, self._sweep = self._sweep, None
        folder = Path(config.hydra.sweep.dir)
        own = overrides_of(OmegaConf.to_container(config.sweep.decoding or OmegaConf.create()))
        given = [*filter(FORWARDED.match, config.hydra.overrides.task), *own]
        failed = decode(folder, [*config_dir(config.hydra.runtime), *given])
        track = config.logger.get("wandb")
        tracker = Tracker(track.project, tags=track.tags) if track else Tracker(mode="disabled")
        report_recipes(folder, config.sweep.ranked_by, config.sweep.reference, tracker, failed)
        return failed


def _other_axis(overrides: Sequence[str]) -> str | None:
    """What is wrong with overrides that vary more than the two settings by which a sweep's points are told apart."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    others = [each.input_line for each in parsed if each.is_sweep_override() and each.key_or_group not in VARIED]
    if not others:
        return None
    varied = " and ".join(VARIED)
    return f"error: +sweep=recipe varies {varied} alone, not {', '.join(others)}; start a sweep for each value"


def overrides_of(settings: Mapping, prefix: str = "") -> list[str]:
    """Nested settings in Hydra's override grammar."""
    found = []
    for key, value in settings.items():
        is_group = isinstance(value, Mapping)
        found += overrides_of(value, f"{prefix}{key}.") if is_group else [override(f"{prefix}{key}", value)]
    return found


def decode(sweep: Path, settings: Sequence[str]) -> list[str]:
    """Runs evaluate.py +sweep=drafters on every drafter of a sweep; it makes no finished point again. Returns the names
    of the runs where it failed."""
    from lantern.reporting.recipe_runs import DECODED, DRAFTER, needed_settings, run_folders

    failed, keys = [], {given.split("=")[0] for given in settings}
    for folder in run_folders(sweep):
        places = [override("drafter.checkpoint", folder / DRAFTER), override("hydra.sweep.dir", folder / DECODED)]
        needed = [each for each in needed_settings(folder) if each.split("=")[0] not in keys]
        command = ["evaluate.py", "+sweep=drafters", *needed, *settings, *places, "tracking.mode=disabled"]
        try:
            run_command(command, "the other drafters go on")
        except LanternError as error:
            log.error("%s: %s", folder.name, error)
            failed.append(folder.name)
    return failed


def report_recipes(folder: Path, ranked_by: str, reference: str, tracker: Tracker, failed: Sequence[str] = ()) -> None:
    """Writes recipes.csv, curves.png and recipes.html, prints the table, and tracks all of them. failed: the names of
    runs that are left out where `ranked_by` was not measured."""
    from lantern.reporting.plots import draw_curves
    from lantern.reporting.recipe_page import write_recipe_page
    from lantern.reporting.recipe_runs import name_of, run_folders, run_row, validations
    from lantern.reporting.recipe_table import columns, format_recipes, recipe_rows
    from lantern.reporting.table import write_csv

    folders = [run for run in run_folders(folder) if run.name not in failed or ranked_by in run_row(run)]
    if not folders:
        return
    runs = [run_row(run) for run in folders]
    rows = recipe_rows(runs, ranked_by, reference)
    curves: dict[str, list] = {}
    for run in folders:
        lines = [line | {"minutes": line["time/training_s"] / 60} for line in validations(run)]
        curves.setdefault(name_of(run)[0], []).append(lines)
    write_csv(rows, folder / "recipes.csv")
    write_csv(runs, folder / "runs.csv")
    figure = draw_curves(curves, AXES, FIGURES, folder / "curves.png")
    notes = [
        f"Ranked by the lower 95 % bound of {ranked_by}. Bounds are Student's t over seeds, the spread "
        "pooled over the recipes; where each has one seed, those of tokens per step are over prompts.",
        f"over {reference}: the difference in {ranked_by}, paired by seed. recipes.csv has the bounds of all figures.",
    ]
    shown = columns(rows, reference, range(1, 7))
    write_recipe_page(folder / "recipes.html", "Recipes of drafter training", notes, rows, shown, figure)
    print(f"\n{format_recipes(rows, shown)}\n\n{notes[0]}\n{folder}/recipes.html")
    tracker.table(rows, [figure], folder, group_of(NAME, folder))
