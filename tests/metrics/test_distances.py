"""The distances that resamples are made with, against torch-fidelity's and against slow twins."""

import pytest
import torch
from test_fidelity import gaussian
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

from lantern.metrics.distances import FrechetTo, Manifolds, cubic_kernel, kernel_distances
from lantern.metrics.fidelity import frechet_distance, kernel_distance, precision_recall


@pytest.mark.parametrize("count", [10, 80], ids=["fewer images than features", "more"])
def test_frechet_distance_agrees_with_torch_fidelity(count):
    """torch-fidelity's root of a product of two singular matrices is good to six digits."""
    made, real = gaussian(count, mean=0.2, dims=16, seed=1), gaussian(100, scale=1.3, dims=16, seed=2)
    assert FrechetTo(real)(made) == pytest.approx(frechet_distance(made, real), rel=1e-5)


def test_kernel_distance_agrees_with_torch_fidelity():
    made, real = gaussian(60, mean=0.2, seed=1), gaussian(60, seed=2)
    theirs = kid_features_to_metric(made, real, kid_subset_size=60, kid_subsets=1, verbose=False, save_cpu_ram=True)
    assert kernel_distance(made, real) == pytest.approx(theirs[KEY_METRIC_KID_MEAN], abs=1e-9)


def test_kernel_distances_of_subsets_are_those_of_the_sets_cut_out():
    """Catches a diagonal that stays in, and weights that belong to another subset."""
    features, real = gaussian(12, seed=1), gaussian(9, mean=0.5, seed=2)
    chosen = torch.rand(5, 12, generator=torch.Generator().manual_seed(0)) < 0.6

    def slow(x, y):
        def mean(a, b, same):
            pairs = [(i, j) for i in range(len(a)) for j in range(len(b)) if not (same and i == j)]
            return sum(float(cubic_kernel(a[i : i + 1], b[j : j + 1])) for i, j in pairs) / len(pairs)

        return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)

    expected = [slow(features[row], real) for row in chosen]
    assert kernel_distances(features, chosen, real).tolist() == pytest.approx(expected)


def test_manifolds_of_subsets_are_torch_fidelitys_of_the_sets_cut_out():
    features, real = gaussian(40, mean=0.8, seed=1), gaussian(30, seed=2)
    manifolds = Manifolds(features, real)
    for start in (0, 7, 15):
        places = torch.arange(start, start + 25)
        assert manifolds(places) == pytest.approx(precision_recall(features[places], real))
