"""+sweep=paper from end to end: every point's pipeline is put together on the embedded model, and one of them runs."""

import pytest
from hydra.utils import instantiate
from support.configs import composed, points_of

import lantern
from lantern.pipeline import pipelines
from lantern.reporting.publish import paper_keys

POINTS = points_of("paper")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def target():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"]).target


@pytest.mark.parametrize("point", POINTS, ids=[" ".join(point) for point in POINTS])
def test_every_point_starts_and_another_models_figures_do_not_stand_beside_it(target, point):
    """Catches a rule without a way to be verified at temperature 0, and figures of another model beside ours."""
    cfg = composed("evaluate", "+sweep=paper", "dtype=float32", "device=cpu", *point)
    parts = {group: instantiate(cfg[group]) for group in ("drafter", "tree", "acceptance", "verification", "sampling")}
    settings = dict(override.split("=") for override in point)
    tree = parts.pop("tree")
    row = pipelines(model=target, **parts)(tree).describe() | {"method": settings["+method"]}
    assert row["temperature"] == float(settings["sampling.temperature"])
    assert paper_keys(row, cfg.published) == {}
