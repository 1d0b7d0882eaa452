"""What trackio is told of evaluations and trainings, by a module in its place: it is no dependency."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from lantern.reporting.ranking import Choice
from lantern.reporting.trackio_runs import TrackioTracker
from lantern.reporting.wandb_runs import Guard, Point, group_of
from lantern.training.run.monitoring import TrackioLogger

ROW = {"model": "m", "drafter": "eagle", "tree": "static", "acceptance": "exact", "speedup": 1.5, "note": None}


@pytest.fixture
def told(monkeypatch) -> list:
    """The calls of trackio, in order."""
    calls, module = [], ModuleType("trackio")
    run = SimpleNamespace(
        log=lambda metrics, step=None: calls.append((metrics, step)), finish=lambda: calls.append("end")
    )
    module.init = lambda project, name, group, config, **_: calls.append((project, name, group, config)) or run
    monkeypatch.setitem(sys.modules, "trackio", module)
    monkeypatch.setattr(Guard, "hangs", False)
    return calls


def test_a_setting_is_a_run_and_so_is_the_end_of_a_sweep(told, tmp_path):
    group, tracker = group_of("delta", tmp_path / "a"), TrackioTracker()
    tracker.point(Point(ROW), {"tree": {"name": "static"}}, tmp_path, group)
    assert told == [
        ("lantern", "m/exact/static", "delta-a", {"tree/name": "static"}),
        ({key: value for key, value in ROW.items() if value is not None}, None), "end",
    ]  # fmt: skip
    told.clear()
    tracker.summary([ROW], Choice(ROW, True, 1), [], Point({}), {"seed": 0}, tmp_path, group)
    assert (told[0][1], told[0][3]) == ("delta-a/summary", {"seed": 0})
    assert (told[1][0]["points"], told[1][0]["best/speedup"]) == (1, 1.5)


def test_a_training_logs_its_curves(told):
    logger = TrackioLogger("lantern", "drafter", "train")
    logger.log_hyperparams({"task": {"lr": 0.1}})
    logger.log_metrics({"val/loss": 2.0}, 3)
    logger.finalize("success")
    assert told == [("lantern", "drafter", "train", {"task/lr": 0.1}), ({"val/loss": 2.0}, 3), "end"]


def test_trackio_ends_no_run(monkeypatch, tmp_path, caplog):
    """Also where it is not installed."""
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.setattr(Guard, "hangs", False)
    TrackioTracker().point(Point(ROW), {}, tmp_path, group_of("g", tmp_path))
    assert "trackio gets nothing more of this run" in caplog.text
