"""+sweep=paper from end to end: every point's pipeline is put together on the embedded model, and one of them runs."""

import subprocess
import sys

import pytest
from hydra.utils import instantiate
from support.configs import composed, points_of
from support.paths import ROOT

import lantern
from lantern.evaluation.rows import read_rows
from lantern.pipeline import pipelines
from lantern.reporting.publish import published_keys

POINTS = points_of("paper")
PUBLISHED = "llamagen_t2i_stage1"
FIGURES = {  # method, temperature, k, delta or lambda
    ("eagle2", 0, None, None), ("eagle2", 1, None, None), ("eagle1", 1, None, None), ("lantern", 0, 1000, 0.2),
    ("lantern", 1, 1000, 0.3), ("lantern", 1, 1000, 0.4), ("lantern_pp", 1, 100, 2.0),
}  # fmt: skip
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def target():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"]).target


@pytest.mark.parametrize("point", POINTS, ids=[" ".join(point) for point in POINTS])
def test_every_point_starts_and_papers_stand_beside_their_own_model_alone(target, point):
    """Catches a rule without a way to be verified at temperature 0, and figures of another model beside ours."""
    cfg = composed("evaluate", "+sweep=paper", "dtype=float32", "device=cpu", *point)
    parts = {group: instantiate(cfg[group]) for group in ("drafter", "tree", "acceptance", "verification", "sampling")}
    settings = dict(override.split("=") for override in point)
    tree = parts.pop("tree")
    row = pipelines(model=target, **parts)(tree).describe() | {"method": settings["+method"]}
    assert row["temperature"] == float(settings["sampling.temperature"])
    assert published_keys(row, cfg.published) == {}
    figures = published_keys(row | {"model": PUBLISHED}, cfg.published)
    numbers = row["lam"] if row["delta"] is None else row["delta"]
    assert bool(figures) == ((row["method"], row["temperature"], row["k"], numbers) in FIGURES)


def test_a_point_runs_without_judging_and_holds_no_published_figure(tmp_path):
    sizes = ["speed.num_prompts=2", "speed.max_retimed=0", "quality.num_images=0", "output_tv.num_positions=4"]
    one = ["sampling.temperature=1", "+method=lantern", "acceptance.delta=0.2", f"hydra.sweep.dir={tmp_path}"]
    command = [sys.executable, "evaluate.py", "+sweep=paper", *one, *sizes, "tracking.mode=disabled"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = read_rows(tmp_path / "0" / "results.jsonl")[-1]
    assert row["method"] == "lantern"
    assert (row["k"], row["delta"], row["tree"], row["split"]) == (1000, 0.2, "eagle2", "test")
    assert row["code_distance"] > row["code_distance_floor"]
    assert not [key for key in row if key.startswith("published")]
