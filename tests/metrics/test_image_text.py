"""Scores of images and prompts: their means, bounds and differences to AR's."""

import numpy as np
import pytest
import torch
from torch import nn

from lantern.metrics.networks import BATCH_SIZE, ImageTextScore


class Brightness(nn.Module):
    """Scores an image by its mean, plus one where the prompt asks for light. Counts its calls."""

    resize = "none"

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.calls = nn.Parameter(torch.tensor(1.0)), 0

    def scores(self, images, prompts):
        self.calls += len(images)
        return images.mean((1, 2, 3)) + torch.tensor([1.0 * (prompt == "light") for prompt in prompts])


def test_the_mean_score_and_its_loss_are_those_of_the_pairs():
    """Catches prompts out of step behind the first chunk, a difference with its sign turned, and unpaired bounds."""
    metric, count = ImageTextScore("bright", Brightness()), BATCH_SIZE + 8
    prompts = ["light" if i % 3 == 0 else "dark" for i in range(count)]
    plain = torch.rand(count, 3, 4, 4)
    images = plain - 0.1
    found, lost = metric(images, prompts), metric.against(images, plain, prompts)
    lights = sum(prompt == "light" for prompt in prompts) / count
    assert found["bright_score"] == pytest.approx(float(images.mean()) + lights, abs=1e-6)
    assert found["bright_score_low"] < found["bright_score"] < found["bright_score_high"]
    for key in ("bright_score_loss", "bright_score_loss_low", "bright_score_loss_high"):
        assert lost[key] == pytest.approx(0.1, abs=1e-6)


def test_equal_images_lose_nothing_and_every_set_is_scored_once():
    metric, images = ImageTextScore("bright", Brightness()), torch.rand(12, 3, 4, 4)
    plain, prompts = images.clone(), ["dark"] * 12
    metric(plain, prompts)
    metric(images, prompts)
    assert set(metric.against(images, plain, prompts).values()) == {0.0}
    assert metric.network.calls == 24


@pytest.mark.full
def test_the_bounds_of_a_loss_cover():
    """95 times in 100; 60 images whose prompts differ far more than the methods do."""
    rng, inside = np.random.default_rng(0), []
    metric = ImageTextScore("bright", Brightness())
    prompts = [("light", "dark")[i % 2] for i in range(60)]
    for _ in range(100):
        plain, images = (torch.from_numpy(rng.normal(0.5, 0.2, (60, 1, 1, 1))) for _ in range(2))
        found = metric.against(images + 0.05, plain, prompts)
        inside.append(found["bright_score_loss_low"] <= -0.05 <= found["bright_score_loss_high"])
    assert 0.88 < np.mean(inside) < 0.99


def test_the_protocol_names_weights_and_resize_method():
    one, other = Brightness(), Brightness()
    other.scale.data += 1
    found = ImageTextScore("bright", one).protocol([])
    assert set(found) == {"bright_score_network", "bright_score_resize"}
    assert found["bright_score_network"] != ImageTextScore("bright", other).protocol([])["bright_score_network"]
