"""The two-sample test of committed latents: it finds what differs and does not find what is equal."""

from functools import partial

import pytest
import torch
from hydra.utils import instantiate
from support.configs import composed
from support.latents import LinearTarget

from lantern.acceptance.exact import Exact
from lantern.continuous.cspd import CSpD
from lantern.continuous.gaussian_ratio import GaussianRatio
from lantern.continuous.gaussian_shared import GaussianShared, Tolerance
from lantern.continuous.latent_jacobi import LatentJacobi
from lantern.continuous.latent_sampling import GaussianNoise, LatentSampling, standard_normals
from lantern.errors import LanternError
from lantern.metrics.output_tv import OutputTV
from lantern.metrics.token_distance import TokenDistance, compare_samples
from lantern.metrics.visits import Visit
from lantern.noise import Purpose
from lantern.pipeline import Pipeline, pipelines
from lantern.trees.static import chain

MEASURED = TokenDistance(num_images=8, num_positions=24, redraws=96)


def pipeline(verification, rule=None) -> Pipeline:
    drafter = partial(LatentJacobi, length=3)
    return pipelines(LinearTarget(), drafter, rule or Exact(), partial(verification), LatentSampling(), "x")(chain(3))


def measured(verification, rule=None) -> dict:
    return MEASURED.measure(pipeline(verification, rule), ["x"] * 8, range(8), 8)


def test_equal_laws_are_seldom_told_apart():
    """Under equal laws p-values are uniform, and the distance is 0 on average."""
    generator = torch.Generator().manual_seed(0)
    pairs = [compare_samples(*torch.randn(2, 64, 3, generator=generator)) for _ in range(60)]
    assert sum(pair.p_value <= 0.05 for pair in pairs) <= 10  # 3 expected: more than 10 once in 4000 runs
    assert abs(sum(pair.distance for pair in pairs) / 60) < 0.006


def test_the_distance_is_that_of_its_definition():
    """2 E|x - y| - E|x - x'| - E|y - y'| over the mean distance, by loops."""
    first, second = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def mean(a, b, same):
        pairs = [(x - y).norm() for i, x in enumerate(a) for j, y in enumerate(b) if not (same and i == j)]
        return sum(pairs) / len(pairs)

    energy = 2 * mean(first, second, False) - mean(first, first, True) - mean(second, second, True)
    both = torch.cat([first, second])
    assert compare_samples(first, second).distance == pytest.approx(float(energy / mean(both, both, True)))


def test_an_exact_method_is_at_the_floor_and_a_lossy_one_above_it():
    """Catches a measure that replays the wrong draft law, or compares the target with itself."""
    exact = measured(GaussianRatio)
    lossy = measured(partial(CSpD, temperature=42, alone=0.0))
    assert abs(exact["output_distance"]) < 0.01 > abs(exact["output_distance_floor"])
    assert lossy["output_distance"] > 0.03  # half of the positions have drafts from the target's law
    assert lossy["output_told_apart"] > exact["output_told_apart"] + 0.15


@pytest.mark.parametrize(("eps", "committed"), [(1e-6, "pick"), (100.0, "draft")])
def test_a_tolerance_decides_between_the_draft_and_the_targets_own_token(eps, committed):
    """Means one apart, of a standard deviation of 0.84: the energy distance is far above its error."""
    p, q = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    visit = Visit(p, q, torch.zeros(1, 2), 0)
    found, floor = MEASURED.compare(visit, pipeline(GaussianShared, Tolerance(eps)))
    assert (found.distance > 0.2) == (committed == "draft")
    assert (found.p_value <= 0.01) == (committed == "draft")
    assert abs(floor.distance) < 0.05


def test_normals_are_standard_independent_and_keyed_by_position():
    """Catches a quantile of the wrong numbers, and two positions, steps or channels that share theirs."""
    found = standard_normals(torch.arange(40)[:, None, None], Purpose.PICK, torch.arange(50)[:, None], torch.arange(26))
    flat = found.double().flatten()
    assert abs(float(flat.mean())) < 0.02
    assert float(flat.var()) == pytest.approx(1, abs=0.03)
    assert float(flat.abs().max()) > 3.5
    assert len(flat.unique()) > 0.999 * len(flat)
    noise = GaussianNoise(2, (3, 4), 5)
    noise.admit(torch.arange(2), torch.tensor([7, 8]))
    rows = noise.normals(6)
    assert rows.shape == (2, 6, 3, 4)
    noise.advance([2, 0], torch.tensor([2, 0]))
    torch.testing.assert_close(noise.normals(4)[0], rows[0, 2:])
    torch.testing.assert_close(noise.normals(6)[1], rows[1])


@pytest.mark.parametrize("measure", [TokenDistance, OutputTV])
@pytest.mark.parametrize("sizes", [(8, 2.5, 64), (0, 2, 64), (8, 2, 0), (8, -1, 64)])
def test_sizes_that_do_not_work_are_one_sentence_before_anything_is_decoded(measure, sizes):
    with pytest.raises(LanternError, match=r"output_tv\.(num_|redraws)"):
        measure(*sizes)


def test_a_method_of_latents_is_measured_by_it():
    """Catches a measure of codes, which measures nothing there and says nothing."""
    cfg = composed("evaluate", "+method=latent_jacobi_cspd", "output_tv.num_positions=5")
    assert instantiate(cfg.output_tv) == TokenDistance(cfg.output_tv.num_images, 5, cfg.output_tv.redraws)
