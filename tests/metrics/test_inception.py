"""torch-fidelity's network from a local file."""

from pathlib import Path

import pytest
import torch
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

from lantern.metrics.fidelity import Fidelity
from lantern.metrics.inception import LAYERS, load_inception


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
def test_torch_fidelitys_network_gives_features_from_a_local_file(weights):
    network, images = load_inception(weights), torch.rand(8, 3, 16, 16)
    bytes_of = (images * 255).round().byte()
    expected = Blank("inception", LAYERS, feature_extractor_weights_path=str(weights))
    torch.nn.Module.load_state_dict(expected, torch.load(weights))
    torch.testing.assert_close(network.features(images), expected(bytes_of)[0])
    assert load_inception(weights, device="meta").features(images).is_meta
    assert "299" in network.resize
    metric = Fidelity(network, lambda prompts, count: torch.rand(count, 3, 16, 16), 8, resamples=2)
    assert metric(images, ["a", "b"] * 4)["frechet"] > 0
    assert metric.protocol(["a", "b"] * 4)["features"] == 2048
