"""The configs of trees, drafters and loops as evaluate.py composes them."""

import pytest
from hydra.utils import instantiate
from support.configs import composed, points_of

from lantern.experiments.ddd_threshold import TauCalibration
from lantern.row_parallel import RowParallel
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.sampled import SampledTree


@pytest.mark.parametrize(("name", "kind"), [("sampled", SampledTree), ("ddd", DDDTree), ("adaptive", AdaptiveTree)])
def test_a_dynamic_tree_is_built_by_its_name(name, kind):
    """Catches a yaml whose arguments its class does not take, and a row that would name another tree."""
    tree = instantiate(composed("evaluate", f"tree={name}").tree)
    assert isinstance(tree, kind)
    assert tree.name == tree.kind == name


def test_the_children_sweep_compares_trees_of_one_size():
    """Catches an A/B in which one tree has more nodes or levels; the drawn one's size varies, but not its limits."""
    points = points_of("children")
    static, chosen, drawn = (instantiate(composed("evaluate", "+sweep=children", *point).tree) for point in points[::8])
    assert (chosen.num_nodes, chosen.depth) == (static.num_nodes, static.depth) == (26, 5)
    assert (chosen.kind, drawn.kind) == ("eagle2", "sampled")


def test_rows_are_a_drafter_under_the_exact_rule():
    cfg = composed("evaluate", "+method=rows", "drafter.window=3")
    assert isinstance(instantiate(cfg.drafter), RowParallel)
    assert (cfg.drafter.window, cfg.acceptance._target_.split(".")[-1]) == (3, "Exact")


def test_the_calibration_takes_the_tree_with_its_settings():
    """Catches a calibration of another tree than the one that is decoded with."""
    calibration = instantiate(composed("evaluate", "+experiment=calibrate_ddd", "tree.depth=9").study)
    assert isinstance(calibration, TauCalibration)
    assert calibration.tree.depth == 9


def test_the_parallel_drafter_is_loaded_by_its_own_loader():
    """Catches drafter=parallel that loads EAGLE's weights."""
    cfg = composed("evaluate", "drafter=parallel", "drafter.checkpoint=/x")
    assert (cfg.drafter._target_, cfg.drafter.checkpoint) == ("lantern.drafters.loading.load_parallel", "/x")
