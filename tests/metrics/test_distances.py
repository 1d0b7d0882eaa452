"""The distances that resamples are made with, against torch-fidelity's and against slow twins."""

import pytest
import torch
from support.features import gaussian
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

from lantern.metrics.distances import (
    FrechetTo,
    Manifolds,
    cubic_kernel,
    frechet_distance,
    kernel_distance,
    kernel_distances,
    precision_recall,
)


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


def block_mean(x, of_x, y, of_y, counted, same):
    """Texts by their shares: the mean kernel of every pair of texts, an image and itself (same) left out, and the terms
    of a text with itself where it is counted."""
    total = weight = 0.0
    for one in of_x.unique():
        for other in of_y.unique():
            rows, columns = (of_x == one).nonzero().flatten().tolist(), (of_y == other).nonzero().flatten().tolist()
            if one == other and int(one) not in counted:
                continue
            pairs = [(i, j) for i in rows for j in columns if not (same and i == j)]
            mean = sum(float(cubic_kernel(x[i : i + 1], y[j : j + 1])) for i, j in pairs) / len(pairs)
            total, weight = total + len(rows) * len(columns) * mean, weight + len(rows) * len(columns)
    return total / weight


def test_kernel_distances_of_subsets_are_those_of_mixtures_of_texts():
    """Catches an image paired with itself, a text's own term that is missing or weighs less than its share."""
    features, real = gaussian(12, seed=1), gaussian(9, mean=0.5, seed=2)
    labels, real_labels = torch.arange(12) // 3, torch.arange(9) // 2  # real text 4 has one image, texts 0 to 3 two
    chosen = torch.rand(5, 12, generator=torch.Generator().manual_seed(0)) < 0.6
    expected = []
    for row in chosen:
        own, known = (features[row], labels[row]), (real, real_labels)
        counted = {text for text in range(4) if int((own[1] == text).sum()) > 1}
        within, among = (block_mean(*side, *side, counted, same=True) for side in (own, known))
        expected.append(within - 2 * block_mean(*own, *known, counted, same=False) + among)
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
