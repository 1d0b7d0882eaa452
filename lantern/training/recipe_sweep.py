"""The end of python train.py +sweep=recipe, as a Hydra callback: decodes with every drafter that was trained, then
reports the recipes in one table, curves and a page."""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lantern.cli.error_messages import user_error
from lantern.cli.subcommand import run_command
from lantern.errors import LanternError
from lantern.reporting.wandb_runs import Tracker, group_of
from lantern.runtime.overrides import override

log = logging.getLogger(__name__)
NAME = "recipe"
FORWARDED = re.compile(r"[+~]*((model|sampling|paths)[.@=]|(device|dtype)=)")  # overrides that describe the target
AXES = {"minutes": "minutes of training, validation left out", "time/steps": "steps"}
FIGURES = {"val/sim_accept_len": "length, ratio verification", "val/sim_agree_len": "length, shared noise"}


def group_name(folder: str) -> str:
    """The W&B group of a sweep's training runs and its summary."""
    return group_of(NAME, folder).name


class RecipeReport(Callback):
    """Decodes and reports at on_multirun_end, which Hydra calls where every point was trained."""

    def on_multirun_end(self, config: DictConfig, **_: object) -> None:
        folder = Path(config.hydra.sweep.dir)
        try:
            own = overrides_of(OmegaConf.to_container(config.sweep.decoding))
            failed = decode(folder, [*filter(FORWARDED.match, config.hydra.overrides.task), *own])
            track = config.logger.get("wandb")
            tracker = Tracker(track.project, tags=track.tags) if track else Tracker(mode="disabled")
            report_recipes(folder, config.sweep.ranked_by, config.sweep.reference, tracker, failed)
        except Exception as error:  # which Hydra would turn into a warning
            known = user_error(error) or error
            raise SystemExit(f"error: the drafters are trained, their report is not made: {known}") from error
        if failed:
            raise SystemExit(
                f"error: the drafters {', '.join(failed)} could not be decoded with, see above; started again with "
                f"hydra.sweep.dir={folder}, the sweep continues from here"
            )


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
    from lantern.reporting.recipe_runs import DECODED, DRAFTER, run_folders

    failed = []
    for folder in run_folders(sweep):
        places = [override("drafter.checkpoint", folder / DRAFTER), override("hydra.sweep.dir", folder / DECODED)]
        command = ["evaluate.py", "+sweep=drafters", *settings, *places, "tracking.mode=disabled"]
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
