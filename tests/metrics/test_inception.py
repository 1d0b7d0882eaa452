"""Inception score against its definition, and torch-fidelity's network from a local file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, isc_features_to_metric

from lantern.errors import LanternError
from lantern.metrics.fidelity import Fidelity
from lantern.metrics.inception import LAYERS, InceptionScore, load_inception
from lantern.metrics.intervals import jackknife, prompt_groups


class Colours(nn.Module):
    """Logits: the mean of each channel, scaled."""

    resize = "none"

    def __init__(self, scale: float = 40.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def logits(self, images):
        return images.mean((2, 3)) * self.scale


def pure(*channels: int) -> torch.Tensor:
    """Images of one colour each."""
    return torch.eye(3)[list(channels)][:, :, None, None].expand(-1, -1, 4, 4).contiguous()


def test_the_splits_are_torch_fidelitys_and_keep_their_images_when_others_are_left_out():
    """Catches a jackknife that shuffles anew for every group: its bounds are those of the partition."""
    images, prompts = torch.rand(60, 3, 4, 4, generator=torch.Generator().manual_seed(0)), ["a", "b"] * 30
    metric = InceptionScore(Colours(20.0), splits=6)
    logits = metric._logits(images)
    found = metric(images, prompts)
    assert found["inception_score"] == pytest.approx(isc_features_to_metric(logits, splits=6)[KEY_METRIC_ISC_MEAN])

    def reshuffled(kept):
        return isc_features_to_metric(logits[kept], splits=6)[KEY_METRIC_ISC_MEAN]

    anew = jackknife(reshuffled, prompt_groups(prompts))
    draws = [torch.rand(60, 3, 4, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(1, 61)]
    spread = np.std([metric._score(metric._logits(drawn), metric._parts(60)) for drawn in draws])
    width = (found["inception_score_high"] - found["inception_score_low"]) / (2 * 1.96)
    assert 0.6 * spread < width < 1.6 * spread < (anew.high - anew.low) / (2 * 1.96)


def test_the_loss_is_paired_and_equal_images_lose_nothing():
    """Catches a difference with its sign turned, and swaps that move the classes' mix."""
    metric, prompts = InceptionScore(Colours()), ["a", "b", "c"] * 10
    plain = pure(*[0, 1, 2] * 10)
    assert set(metric.against(plain.clone(), plain, prompts).values()) == {0.0}
    lost = metric.against(pure(*[0, 0, 1] * 10), plain, prompts)
    assert lost["inception_score_loss"] > lost["inception_score_loss_low"] > 0
    found = metric(plain, prompts)
    assert found["inception_score_low"] <= found["inception_score"] <= found["inception_score_high"]


def test_few_images_give_a_warning_or_are_rejected():
    metric = InceptionScore(Colours(), splits=10)
    assert "499 images" in metric.warnings(["a"] * 499)[0]
    assert metric.warnings(["a"] * 500) == []
    with pytest.raises(LanternError, match="19 images are too few"):
        metric.prepare(["a"] * 19)


class Blank(FeatureExtractorInceptionV3):
    """Keeps its random weights."""

    def load_state_dict(self, *_):
        return None


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("inception") / "weights.pth"
    torch.save({"nothing": torch.zeros(1)}, path)
    torch.manual_seed(0)
    blank = Blank("inception", LAYERS, feature_extractor_weights_path=str(path))
    torch.save(blank.state_dict(), path)
    return path


@pytest.mark.full
def test_torch_fidelitys_network_gives_features_and_logits_from_a_local_file(weights):
    network, images = load_inception(weights), torch.rand(8, 3, 16, 16)
    bytes_of = (images * 255).round().byte()
    expected = Blank("inception", LAYERS, feature_extractor_weights_path=str(weights))
    torch.nn.Module.load_state_dict(expected, torch.load(weights))
    features, logits = expected(bytes_of)
    torch.testing.assert_close(network.features(images), features)
    torch.testing.assert_close(network.logits(images), logits)
    assert load_inception(weights, device="meta").features(images).is_meta
    assert "299" in network.resize
    metric = Fidelity(network, lambda prompts, count: torch.rand(count, 3, 16, 16), 8, resamples=2)
    assert metric(images, ["a", "b"] * 4)["frechet"] > 0
    assert metric.protocol(["a", "b"] * 4)["features"] == 2048
