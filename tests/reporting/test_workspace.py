"""The saved view of a W&B project, as it would be sent: no test needs a server or a key."""

import json
import sys

import pytest

from lantern.errors import LanternError
from lantern.evaluation.rows import fixed_figures
from lantern.figures import figures
from lantern.reporting import workspace
from lantern.reporting.wandb_runs import curves_of


def test_a_view_has_a_section_for_each_question():
    """Catches a panel that wandb-workspaces no longer builds."""
    pytest.importorskip("wandb_workspaces")
    view = workspace.workspace("team", "lantern")
    assert [section.name for section in view.sections] == [
        "Speed and price",
        "Same prompts",
        "Accepted drafts",
        "Trainings",
    ]
    sent = json.dumps(view._to_model().model_dump(mode="json"))
    assert all(f"acceptance_by_{kind}/accepted" in sent for kind in workspace.PROFILES)
    assert all(key in sent for key in ("speedup", *(one.key for one in figures(plotted=True)), "val/alpha_1"))


def test_the_view_shows_what_runs_log():
    """Catches a figure or a curve that was renamed after the view."""
    tally = {"judged": [4], "accepted": [2]}
    profile = {"rounds": 1, "committed": [0, 1], **dict.fromkeys(workspace.PROFILES, tally)}
    logged = {curve.name: curve.axis for curve in curves_of(profile, [])}
    assert {f"acceptance_by_{kind}": axis for kind, axis in workspace.PROFILES.items()}.items() <= logged.items()
    assert {"speedup", "tokens_per_step", "output_tv"} <= {*fixed_figures()}


def test_what_is_missing_is_one_sentence(monkeypatch):
    with pytest.raises(LanternError, match="no team or user is named"):
        workspace.main()
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    with pytest.raises(LanternError, match="pip install wandb-workspaces"):
        workspace.main("team")
