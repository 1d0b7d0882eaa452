"""python -m lantern.reporting.workspace <entity> [<project>]: saves a view of a Weights & Biases project: speed against
its price, the same prompts under every setting, where drafts are accepted, and the curves of trainings. Needs
wandb-workspaces and an account; results are complete without it."""

import sys
from typing import TYPE_CHECKING

from lantern.errors import LanternError, first_line
from lantern.figures import figures

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

NAME = "Lantern"
PROFILES = {"depth": "level", "rank": "rank", "entropy": "bits"}  # of acceptance, by their axes
CURVES = {"overlap with the target": ["val/alpha_1", "val/alpha_2"], "loss": ["train/loss"]}


def workspace(entity: str, project: str) -> "Workspace":
    """The view, which save() sends."""
    try:
        from wandb_workspaces.reports.v2 import BarPlot, LinePlot, ScatterPlot, SummaryMetric, WeavePanelSummaryTable
        from wandb_workspaces.workspaces import Section, Workspace
    except ModuleNotFoundError as error:
        raise LanternError("wandb-workspaces is not installed; give pip install wandb-workspaces") from error
    speed = SummaryMetric("speedup")
    prices = [
        ScatterPlot(f"speed-up against {one.title}", SummaryMetric(one.key), speed) for one in figures(plotted=True)
    ]
    gains = [BarPlot(key, [SummaryMetric(key)]) for key in ("speedup", "tokens_per_step")]
    tables = [WeavePanelSummaryTable(table_name=name) for name in ("results", "images")]
    names = {f"acceptance_by_{kind}": axis for kind, axis in PROFILES.items()}
    profiles = [LinePlot(name, f"{name}/{axis}", [f"{name}/accepted"]) for name, axis in names.items()]
    curves = [LinePlot(title, y=keys) for title, keys in CURVES.items()]
    contents = {"Speed and price": [*prices, *gains], "Same prompts": tables, "Accepted drafts": profiles}
    sections = [Section(name, panels, is_open=True) for name, panels in (contents | {"Trainings": curves}).items()]
    return Workspace(entity, project, NAME, sections)


def main(entity: str = "", project: str = "lantern") -> str:
    """The address of the saved view."""
    if not entity:
        raise LanternError("no team or user is named; give python -m lantern.reporting.workspace <entity> [<project>]")
    view = workspace(entity, project)
    try:
        return view.save().url
    except Exception as error:  # of W&B's client and its connections
        raise LanternError(f"{entity}/{project} cannot be reached ({first_line(error)}); give wandb login") from error


if __name__ == "__main__":
    try:
        print(main(*sys.argv[1:3]))
    except LanternError as error:
        sys.exit(f"error: {error}")
