"""Differences of images of the same prompt among each other and from AR's."""

import math

import pytest
import torch
from support.features import MeanColour

from lantern.metrics.differences import Diversity, ImageDifference


def flat(*greys: float) -> torch.Tensor:
    return torch.tensor(greys).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)


def test_equal_images_are_counted_and_others_measured():
    greys, prompts = [0.5, 0.5, 0.3, 0.9], ["a"] * 20
    found = ImageDifference().against(flat(*5 * greys), flat(*20 * [0.5]), prompts)
    assert found["equal_images"] == 0.5
    assert found["image_diff"] == pytest.approx((0.2 + 0.4) / 4)
    assert found["image_diff_low"] < found["image_diff"] < found["image_diff_high"]
    assert ImageDifference().against(flat(0.5, 0.9), flat(0.4, 0.1), ["a"] * 2)["image_diff_low"] == 0


@pytest.mark.parametrize(
    ("differing", "equal", "has_bounds"), [(0, 24, False), (1, 23, False), (9, 1, False), (8, 0, True), (10, 40, True)]
)
def test_a_difference_that_few_pairs_show_has_no_bounds(differing, equal, has_bounds):
    """Catches bounds of a mean whose rare pairs were hardly drawn."""
    greys = [0.5 + 0.01 * (1 + number) for number in range(differing)] + [0.5] * equal
    found = ImageDifference().against(flat(*greys), flat(*[0.5] * len(greys)), ["a"] * len(greys))
    assert [math.isfinite(found[f"image_diff{end}"]) for end in ("_low", "_high")] == 2 * [has_bounds]


def test_diversity_is_the_mean_distance_within_prompts_and_its_loss_is_paired():
    """Catches distances between prompts, and prompts that weigh by their number of images."""
    metric = Diversity(MeanColour())
    prompts = ["a", "a", "b", "b", "b", "c"]
    grey = [0.0, 51 / 255, 0.0, 0.0, 102 / 255, 1.0]  # whole bytes
    within = [0.2, (0.4 + 0.4 + 0.0) / 3]
    plain = flat(*grey)
    assert metric(plain, prompts)["diversity"] == pytest.approx(math.sqrt(3) * sum(within) / 2)
    lost = metric.against(flat(0, 0, 0, 0, 0, 1), plain, prompts)
    assert lost["diversity_loss"] == pytest.approx(math.sqrt(3) * sum(within) / 2)
    assert lost["diversity_loss_low"] < lost["diversity_loss"] < lost["diversity_loss_high"]
