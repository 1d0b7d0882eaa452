"""The distances that resamples are made with, against torch-fidelity's and against slow twins."""

import pytest
import torch
from test_fidelity import gaussian
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

from lantern.metrics.distances import FrechetTo, Manifolds, cubic_kernel, kernel_distances
from lantern.metrics.fidelity import frechet_distance, kernel_distance, precision_recall


@pytest.mark.parametrize("count", [10, 80], ids=["fewer images than features", "more"])
@pytest.mark.parametrize("others", [12, 100], ids=["fewer real ones", "more real ones"])
def test_frechet_distance_agrees_with_torch_fidelity(count, others):
    """torch-fidelity's root of a product of two singular matrices is good to six digits."""
    made, real = gaussian(count, mean=0.2, dims=16, seed=1), gaussian(others, scale=1.3, dims=16, seed=2)
    assert FrechetTo(real)(made) == pytest.approx(frechet_distance(made, real), rel=1e-5)


def test_kernel_distance_agrees_with_torch_fidelity():
    made, real = gaussian(60, mean=0.2, seed=1), gaussian(60, seed=2)
    theirs = kid_features_to_metric(made, real, kid_subset_size=60, kid_subsets=1, verbose=False, save_cpu_ram=True)
    apart = torch.arange(60), torch.arange(60, 120)
    assert kernel_distance(made, real, *apart) == pytest.approx(theirs[KEY_METRIC_KID_MEAN], abs=1e-9)


def test_kernel_distances_of_subsets_are_means_over_pairs_of_different_labels():
    """Catches a diagonal that stays in, a pair within a label that counts, and weights of another subset."""
    features, real = gaussian(12, seed=1), gaussian(9, mean=0.5, seed=2)
    labels, real_labels = torch.arange(12) // 3, torch.arange(9) // 2
    chosen = torch.rand(5, 12, generator=torch.Generator().manual_seed(0)) < 0.6

    def mean(x, of_x, y, of_y):
        pairs = [(i, j) for i in range(len(x)) for j in range(len(y)) if of_x[i] != of_y[j]]
        return sum(float(cubic_kernel(x[i : i + 1], y[j : j + 1])) for i, j in pairs) / len(pairs)

    among = mean(real, real_labels, real, real_labels)
    expected = []
    for row in chosen:
        own = features[row], labels[row]
        expected.append(mean(*own, *own) - 2 * mean(*own, real, real_labels) + among)
    found = kernel_distances(features, chosen, real, labels, real_labels)
    assert found.tolist() == pytest.approx(expected)


def test_the_kernel_distance_of_images_made_prompt_by_prompt_is_unbiased():
    """Counting pairs within a prompt on the real side alone, as for images drawn freely, is far below zero here."""
    prompts, found, naive = 3 * gaussian(16, seed=0), [], []
    labels, real_labels = torch.arange(16), torch.arange(64) % 16
    for seed in range(100):
        made = prompts + gaussian(16, seed=10 + seed)
        real = prompts.repeat(4, 1) + gaussian(64, seed=1000 + seed)
        found.append(kernel_distance(made, real, labels, real_labels))
        naive.append(kernel_distance(made, real, labels, 100 + torch.arange(64)))
    found, naive = torch.tensor(found), torch.tensor(naive)
    assert abs(found.mean()) < 3 * found.std() / 10
    assert naive.mean() < -10 * naive.std() / 10


def test_manifolds_of_subsets_are_torch_fidelitys_of_the_sets_cut_out():
    features, real = gaussian(40, mean=0.8, seed=1), gaussian(30, seed=2)
    manifolds = Manifolds(features, real)
    for start in (0, 7, 15):
        places = torch.arange(start, start + 25)
        assert manifolds(places) == pytest.approx(precision_recall(features[places], real))
