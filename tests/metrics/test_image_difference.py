"""Differences of images of the same prompt among each other and from AR's."""

import math

import pytest
import torch
from support.features import MeanColour

from lantern.metrics.diversity import Diversity
from lantern.metrics.image_difference import ImageDifference


def flat(*greys: float) -> torch.Tensor:
    return torch.tensor(greys).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)


def test_equal_images_are_counted_and_others_measured():
    found = ImageDifference().against(flat(0.5, 0.5, 0.3, 0.9), flat(0.5, 0.5, 0.5, 0.5), ["a"] * 4)
    assert found["equal_images"] == 0.5
    assert found["image_diff"] == pytest.approx((0.2 + 0.4) / 4)
    assert found["image_diff_low"] < found["image_diff"] < found["image_diff_high"]


def test_a_lossless_image_set_is_without_any_difference():
    images = torch.rand(4, 3, 4, 4)
    found = ImageDifference().against(images, images.clone(), ["a"] * 4)
    assert (found["image_diff"], found["image_diff_high"], found["equal_images"]) == (0, 0, 1)


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


def test_without_a_prompt_that_occurs_twice_there_is_no_diversity():
    assert math.isnan(Diversity(MeanColour())(flat(0, 1), ["a", "b"])["diversity"])
