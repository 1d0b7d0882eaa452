"""What each sweep varies: its points compose, its axes give way to the command line, and every method is in one."""

import pytest
from omegaconf import OmegaConf
from support.commands import python
from support.configs import SWEEPS, composed, composed_with_hydra, points_of, sweep_points
from support.paths import CONF


def settings_of(sweep: str) -> list[dict[str, str]]:
    """The overrides of every point, by name."""
    return [dict(override.split("=") for override in point) for point in points_of(sweep)]


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_runs_without_m_and_each_of_its_points_composes(name):
    cfg = composed_with_hydra("evaluate", f"+sweep={name}")
    assert cfg.hydra.mode.name == "MULTIRUN"
    assert cfg.sweep.name == name
    points = sweep_points(cfg)
    for point in points[:: 1 + len(points) // 4]:  # of a large grid, some of it
        composed("evaluate", f"+sweep={name}", *point)


METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))


def methods_of(sweep: str) -> set[str]:
    return {settings["+method"] for settings in settings_of(sweep)}


def test_the_paper_sweep_runs_its_settings_at_both_temperatures():
    points = settings_of("paper")
    assert [point.pop("sampling.temperature") for point in points].count("0") == len(points) / 2 == 11
    assert all(points.count(point) == 2 for point in points)


def test_the_command_line_replaces_axes_and_a_method_replaces_all_grids():
    """Catches a selection of methods that every grid runs again, with numbers that are another method's."""
    cfg = composed_with_hydra("evaluate", "+sweep=paper")
    assert len(sweep_points(cfg, "sampling.temperature=1")) == 11
    chosen = sweep_points(cfg, "+method=lantern", "acceptance.delta=0.1,0.2", "sampling.temperature=1")
    assert chosen == [["sampling.temperature=1", "+method=lantern", f"acceptance.delta={d}"] for d in (0.1, 0.2)]
    assert len(points_of("field", "+method=jacobi,lantern")) == 2
    assert len(points_of("field", "speed.num_prompts=1")) == 38
    assert points_of("field", "++method=jacobi") == [["++method=jacobi"]]


@pytest.mark.parametrize(("given", "found"), [
    (["drafter=jacobi,eagle", "drafter.checkpoint=X,Y"], ["length=15", "checkpoint=X", "checkpoint=Y"]),
    (["drafter=jacobi,sjd,eagle", "drafter.length=7"], ["length=7", "length=7", "checkpoint="]),
    (["drafter=jacobi,eagle", "drafter.length=range(7,9)"], ["length=7", "length=8", "checkpoint="]),
    (["drafter=jacobi,eagle", "drafter.checkpoint=null"], ["length=15", "checkpoint=None"]),
])  # fmt: skip
def test_a_setting_holds_for_the_points_that_have_it(given, found, tmp_path):
    """Catches a sweep over parts with different settings that Hydra refuses, and one point that is measured twice."""
    done = python("evaluate.py", "-m", "dry_run=true", *given, f"hydra.sweep.dir={tmp_path}")
    configs = [OmegaConf.load(path).drafter for path in sorted(tmp_path.glob("*/.hydra/config.yaml"))]
    shown = [" ".join(f"{key}={value}" for key, value in config.items()) for config in configs]
    assert [one in text for one, text in zip(found, shown, strict=True)] == [True] * len(found)
    assert "left out" in done.stdout + done.stderr


def test_every_method_is_in_a_sweep():
    """Catches one that no table shows, and a sweep of methods that are not there. Synthetic rates are no method."""
    assert set.union(*map(methods_of, ("field", "paper", "equal_quality", "eps"))) == set(METHODS) - {"synthetic"}


def test_a_reference_keeps_its_settings_and_shares_what_is_no_axis():
    """Catches a lossless reference that runs with the sweep's rule, or is drafted by other weights than the points."""
    own = ["+method=refined_jacobi", "drafter=refined_jacobi", "acceptance=exact"]
    given = ["acceptance.delta=0.1,0.2", "acceptance.k=10", "acceptance=lantern", "tree=chain", "tree.length=6"]
    *points, reference = points_of("delta", *given, "drafter.checkpoint=x", "seed=3")
    assert [point[0] for point in points] == ["acceptance.delta=0.1", "acceptance.delta=0.2"]
    assert reference == [*own, "drafter.checkpoint=x", "seed=3"]
    *_, reference = points_of("delta", "drafter=eagle", "drafter.checkpoint=x")
    assert reference == own
    assert all("acceptance=exact" not in point for point in points_of("delta", "+method=lantern"))


def test_the_demos_sweep_also_has_the_trained_drafter():
    """Catches a reference whose weights the command line replaces."""
    *lantern, other, trained = points_of("demo", "drafter.checkpoint=x", "trained_drafter=y")
    found = [composed("evaluate", "+sweep=demo", *point).drafter.checkpoint for point in (*lantern, other, trained)]
    assert found == ["x", "x", "x", "y"]


@pytest.mark.parametrize("added", ["++acceptance.delta=0.5", "+tree.name=mine"])
def test_an_added_setting_of_the_rule_is_not_the_references(added):
    """Catches a reference that fails on a setting which its rule does not have."""
    points = points_of("delta", added)
    assert "+method=refined_jacobi" in points[-1]
    assert [added in point for point in points] == [True] * (len(points) - 1) + [False]
