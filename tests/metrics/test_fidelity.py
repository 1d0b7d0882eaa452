import numpy as np
import pytest
import torch
from support.features import MeanColour

from lantern.data.image_sets import BATCH_SIZE
from lantern.errors import LanternError
from lantern.metrics.fidelity import Fidelity
from lantern.metrics.intervals import share_bounds
from lantern.metrics.metric import extract_features


def test_features_are_those_of_images_in_bytes():
    images = torch.rand(BATCH_SIZE + 5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    rounded = (images * 255).round() / 255
    torch.testing.assert_close(extract_features(images, MeanColour().features), rounded.mean((2, 3)))


@pytest.mark.parametrize("prompts", [["a"] * 7 + ["b"], ["a"] * 8, [*"aabbccdd"], [*"abcdefgh"]])
def test_few_texts_have_bounds(prompts):
    """Catches 0 / 0 in the jackknife where one text is left and no pair of different texts."""
    images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    metric = Fidelity(MeanColour(), lambda prompts, count: torch.rand(count, 3, 8, 8), num_references=16, resamples=5)
    found = metric(images, prompts) | metric.against(images, 1 - images, prompts)
    assert all(np.isfinite(value) for key, value in found.items() if key.startswith("kernel"))


@pytest.mark.full
def test_the_bounds_of_recall_cover_over_sets_of_generated_images():
    """Catches bounds that take the manifold of few generated images as known: they cover half of the time here."""
    real, found = torch.rand(200, 3, 1, 1, generator=torch.Generator().manual_seed(0)), []
    metric = Fidelity(MeanColour(), lambda prompts, count: real[:count], num_references=200, resamples=1)
    for seed in range(40):
        images = torch.rand(24, 3, 1, 1, generator=torch.Generator().manual_seed(1 + seed))
        found.append(metric(images, [*"abcdef"] * 4))
    truth = np.mean([values["recall"] for values in found])
    inside = np.mean([values["recall_low"] <= truth <= values["recall_high"] for values in found])
    wilson = np.mean([low <= truth <= high for low, high in (share_bounds(v["recall"], 200) for v in found)])
    assert wilson < 0.85 < 0.9 <= inside


@pytest.mark.full
def test_the_bounds_of_precision_cover_and_are_no_wider_than_needed():
    """Catches a jackknife that leaves out real images as well: bounds 2.4 times as wide as needed here."""
    real, found = torch.rand(256, 3, 1, 1, generator=torch.Generator().manual_seed(0)), []
    metric = Fidelity(MeanColour(), lambda prompts, count: real[:count], num_references=256, resamples=1)
    for seed in range(40):
        images = torch.rand(256, 3, 1, 1, generator=torch.Generator().manual_seed(1 + seed))
        found.append(metric(images, [*"abcdefgh"] * 32))
    shares, low, high = (np.array([v[f"precision{end}"] for v in found]) for end in ("", "_low", "_high"))
    assert np.mean((low <= shares.mean()) & (shares.mean() <= high)) >= 0.9
    assert (high - low).mean() / (2 * 1.96) < 1.6 * shares.std()


def test_equal_images_lose_nothing_and_worse_ones_lose_with_both_bounds_above_zero():
    """Catches a difference that is not paired, or has its sign turned round."""
    noise = torch.Generator().manual_seed(3)
    metric = Fidelity(MeanColour(), lambda prompts, count: 0.4 + 0.1 * torch.rand(count, 3, 8, 8), 64, resamples=40)
    prompts = ["wood", "sand"] * 16
    plain = 0.4 + 0.1 * torch.rand(32, 3, 8, 8, generator=noise)
    assert set(metric.against(plain.clone(), plain, prompts).values()) == {0.0}
    lost = metric.against(plain + 0.3, plain, prompts)
    assert lost["frechet_diff"] > lost["frechet_diff_low"] > 0
    assert lost["kernel_diff_low"] > 0
    assert lost["precision_loss"] > 0.5
    assert lost["recall_loss"] > 0.5


@pytest.mark.full
def test_the_bounds_of_a_loss_of_recall_are_no_narrower_than_its_spread():
    """Catches bounds from swaps alone: 0.83 times as wide as its spread where a fifth of the variety is lost."""
    found, prompts = [], [*"abcdefgh"] * 8
    for seed in range(120):
        real, images, plain = torch.rand(3, 64, 3, 1, 1, generator=torch.Generator().manual_seed(seed))
        metric = Fidelity(MeanColour(), lambda prompts, count, real=real: real[:count], 64, resamples=40)
        found.append(metric.against(0.5 + 0.8 * (images - 0.5), plain, prompts))
    losses, low, high = (np.array([v[f"recall_loss{end}"] for v in found]) for end in ("", "_low", "_high"))
    assert np.mean((low <= losses.mean()) & (losses.mean() <= high)) >= 0.93
    assert 0.95 < (high - low).mean() / (2 * 1.96) / losses.std() < 1.25


def test_the_difference_is_that_of_the_two_rows_and_references_are_made_once():
    """Catches subsets that leave images out or count them twice."""
    generator, counts = torch.Generator().manual_seed(5), []

    def references(prompts, count):
        counts.append(count)
        return torch.rand(count, 3, 4, 4, generator=generator)

    metric = Fidelity(MeanColour(), references, 48, 5)
    prompts = ["wood", "sand"] * 12
    metric.prepare(prompts)
    images, plain = torch.rand(2, 24, 3, 4, 4, generator=generator)
    rows = [metric(made, prompts) for made in (images, plain)]
    lost = metric.against(images, plain, prompts)
    for name, sign in (("frechet_diff", 1), ("kernel_diff", 1), ("precision_loss", -1), ("recall_loss", -1)):
        key = name.split("_")[0]
        assert lost[name] == pytest.approx(sign * (rows[0][key] - rows[1][key]), abs=1e-6)
        assert rows[0][f"{key}_low"] <= rows[0][key] <= rows[0][f"{key}_high"]
    assert counts == [48]


def test_the_protocol_tells_other_references_and_other_weights_apart():
    """Catches a hash of names instead of content."""

    def protocol(scale, seed):
        generator = torch.Generator().manual_seed(seed)
        metric = Fidelity(MeanColour(scale), lambda prompts, count: torch.rand(count, 3, 4, 4, generator=generator), 16)
        return metric.protocol(["wood"] * 16)

    one, weights, images = protocol(1.0, 0), protocol(2.0, 0), protocol(1.0, 1)
    assert one == protocol(1.0, 0)
    assert one["extractor"] == images["extractor"] != weights["extractor"]
    assert one["reference_hash"] != images["reference_hash"]
    assert one["num_references"] == 16


def test_too_few_images_are_rejected_before_they_are_decoded():
    metric = Fidelity(MeanColour(), lambda prompts, count: torch.zeros(count, 3, 8, 8))
    with pytest.raises(LanternError, match="too few"):
        metric.prepare(["wood"] * 3)
    with pytest.raises(LanternError, match="2 real images are too few"):
        Fidelity(MeanColour(), lambda prompts, count: torch.zeros(2, 3, 8, 8)).prepare(["wood"] * 10)
