"""The distances of sets and of hundreds of their subsets, against torch-fidelity's and against slow twins."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from support.features import gaussian
from torch import Tensor
from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric
from torch_fidelity.metric_prc import KEY_METRIC_PRECISION, KEY_METRIC_RECALL, prc_features_to_metric

from lantern.metrics import distances
from lantern.metrics.distances import (
    NEIGHBOURHOOD,
    FrechetTo,
    Manifolds,
    cubic_kernel,
    fitted,
    kernel_distances,
    parts_without,
)


@pytest.fixture(params=[None, (3, 5), (8, 4)], ids=["one block", "wide blocks", "tall blocks"])
def blocks(request, monkeypatch) -> Iterator[None]:
    """A block of all pairs, and blocks that cut through rows, columns and the diagonal."""
    for name, size in zip(("ROWS", "COLUMNS"), request.param or (), strict=False):
        monkeypatch.setattr(distances, name, size)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("count", [10, 80], ids=["fewer images than features", "more"])
@pytest.mark.parametrize("others", [12, 100], ids=["fewer real ones", "more real ones"])
def test_frechet_distance_agrees_with_torch_fidelity(count, others):
    """torch-fidelity's root of a product of two singular matrices is good to six digits."""
    made, real = gaussian(count, mean=0.2, dims=16, seed=1), gaussian(others, scale=1.3, dims=16, seed=2)
    statistics = [fid_features_to_statistics(features) for features in (made, real)]
    expected = fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]
    assert FrechetTo(real)(made) == pytest.approx(expected, rel=1e-5)
    assert FrechetTo(fitted(real))(fitted(made)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("count", [12, 90], ids=["fewer images than features", "more"])
def test_parts_without_a_group_are_those_of_the_features_cut_out(count):
    """Catches a mean or covariance that still holds the group, and a group without images."""
    features, groups = gaussian(count, mean=3.0, dims=16), torch.arange(count) % 4
    parts = list(parts_without(features.float(), groups, 5))
    to = FrechetTo(gaussian(60, dims=16, seed=1))
    expected = [to(features.float().double()[groups != group]) for group in range(5)]
    assert [to(part) for part in parts] == pytest.approx(expected, rel=1e-9)


def precision_recall(generated: torch.Tensor, real: torch.Tensor) -> list[float]:
    """torch-fidelity's."""
    quiet = {"verbose": False, "save_cpu_ram": True}
    found = prc_features_to_metric(generated, real, prc_neighborhood=NEIGHBOURHOOD, **quiet)
    return [found[KEY_METRIC_PRECISION], found[KEY_METRIC_RECALL]]


def kernel_distance(generated: Tensor, real: Tensor, labels: Tensor, real_labels: Tensor) -> float:
    everyone, all_real = (torch.ones(1, len(side), dtype=torch.bool) for side in (generated, real))
    return float(kernel_distances(generated, everyone, real, all_real, labels, real_labels))


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


@pytest.mark.usefixtures("blocks")
def test_kernel_distances_of_subsets_are_those_of_mixtures_of_texts():
    """Catches an image paired with itself, a text's own term that is missing or weighs less than its share."""
    features, real = gaussian(12, seed=1), gaussian(9, mean=0.5, seed=2)
    labels, real_labels = torch.arange(12) // 3, torch.arange(9) // 2  # real text 4 has one image, texts 0 to 3 two
    chosen = torch.rand(5, 12, generator=torch.Generator().manual_seed(0)) < 0.6
    kept = torch.rand(5, 9, generator=torch.Generator().manual_seed(1)) < 0.9
    expected = []
    for row, others in zip(chosen, kept, strict=True):
        own, known = (features[row], labels[row]), (real[others], real_labels[others])
        counted = {text for text in range(4) if min(int((of[1] == text).sum()) for of in (own, known)) > 1}
        within, among = (block_mean(*side, *side, counted, same=True) for side in (own, known))
        expected.append(within - 2 * block_mean(*own, *known, counted, same=False) + among)
    found = kernel_distances(features, chosen, real, kept, labels, real_labels)
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


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("known", [1, 6, 40], ids=["no neighbours kept", "too few for some", "all kept"])
def test_manifolds_of_subsets_are_torch_fidelitys_of_the_sets_cut_out(known, monkeypatch):
    """Catches a radius taken from the neighbours that are kept where too few of them are in the subset."""
    monkeypatch.setattr(distances, "KNOWN_NEIGHBOURS", known)
    features, real = gaussian(40, mean=0.8, seed=1), gaussian(30, seed=2)
    chosen = torch.rand(6, 40, generator=torch.Generator().manual_seed(0)) < 0.6
    kept = torch.ones(1, 30, dtype=torch.bool)
    expected = [precision_recall(features[subset], real) for subset in chosen]
    assert Manifolds(features, real)(chosen, kept).numpy() == pytest.approx(np.array(expected))


def test_recall_counts_the_kept_real_images_in_the_manifold_of_all():
    features, real = gaussian(40, mean=0.8, seed=1), gaussian(30, seed=2)
    everyone, all_real = torch.ones(1, 40, dtype=torch.bool), torch.ones(1, 30, dtype=torch.bool)
    one_by_one = Manifolds(features, real)(everyone.expand(30, -1), torch.eye(30, dtype=torch.bool))[:, 1]
    assert set(one_by_one.tolist()) == {0.0, 1.0}
    assert float(Manifolds(features, real)(everyone, all_real)[0, 1]) == pytest.approx(float(one_by_one.mean()))
