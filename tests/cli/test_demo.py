"""The demo's commands: real ones, of the plan's sizes."""

from pathlib import Path

import pytest
from support.configs import composed

from lantern.cli.demo import _new_plan, recorded_plan, sweep_command, training_command
from lantern.cli.demo_timings import TREES
from lantern.errors import LanternError

PLACE = ["device=cpu", "dtype=float32"]


def plan(tree: str = TREES[0]) -> dict:
    size = {"deltas": [0, 0.03, 0.4], "num_prompts": 5, "num_images": 24}
    return {"given": "auto", "training_s": 3725, "training_images": 256, "tree": tree, "size": size}


@pytest.mark.parametrize("tree", TREES)
def test_the_sweep_composes_on_every_tree_and_has_the_size_of_the_plan(tree):
    """Catches a setting that was renamed, which the demo would meet after its training."""
    command = sweep_command(plan(tree), Path("runs/demo"), PLACE)
    config = composed("evaluate", *(part for part in command[1:] if not part.startswith("acceptance.delta")))
    assert (config.speed.num_prompts, config.quality.num_images) == (5, 24)
    assert config.drafter.checkpoint == "runs/demo/train/drafter"
    assert config.dtype == "float32"
    assert "acceptance.delta=0,0.03,0.4" in command


def test_training_composes_with_its_time():
    config = composed("train", *training_command(plan(), Path("runs/demo"), PLACE)[1:])
    assert config.trainer.max_time == "00:01:02:05"
    assert config.rendered.num_train == 256


def test_a_demo_of_other_minutes_is_not_continued(tmp_path):
    """Catches a plan on record that silently overrules the minutes given now."""
    assert recorded_plan(tmp_path, "auto") is None
    (tmp_path / "plan.json").write_text('{"given": 3, "size": {}}')
    assert recorded_plan(tmp_path, 3) == {"given": 3, "size": {}}
    with pytest.raises(LanternError, match=r"demo\.minutes=3"):
        recorded_plan(tmp_path, "auto")


@pytest.mark.parametrize("content", ['{"giv', "[]", "{}"])
def test_a_damaged_plan_is_made_anew(content, tmp_path):
    """Catches a traceback out of a file that a full disk has cut."""
    (tmp_path / "plan.json").write_text(content)
    assert recorded_plan(tmp_path, "auto") is None


@pytest.mark.parametrize("minutes", [float("nan"), float("inf"), True, 0, "long"])
def test_minutes_that_are_no_number_are_refused_before_anything_is_timed(minutes, tmp_path, monkeypatch):
    monkeypatch.setattr("lantern.cli.demo_timings.timings_of", lambda place: pytest.fail("timed"))
    with pytest.raises(LanternError, match=f"demo.minutes={minutes} is no number of minutes"):
        _new_plan(tmp_path, minutes, PLACE)
