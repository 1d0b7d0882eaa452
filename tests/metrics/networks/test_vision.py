import pytest
import torch
from transformers import CLIPVisionConfig, CLIPVisionModel, Dinov2Config, Dinov2Model

from lantern.errors import CheckpointError
from lantern.metrics.networks.vision import load_vision

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}


@pytest.mark.parametrize(
    "body",
    [
        lambda: Dinov2Model(Dinov2Config(**SMALL)),
        lambda: CLIPVisionModel(CLIPVisionConfig(intermediate_size=16, **SMALL)),
    ],
    ids=["dinov2", "clip"],
)
def test_a_vision_network_of_a_local_folder_gives_pooled_features_of_any_image_size(tmp_path, body):
    body().save_pretrained(tmp_path)
    network = load_vision(tmp_path)
    images = torch.rand(2, 3, 50, 50)
    assert network.features(images).shape == (2, 16)
    assert load_vision(tmp_path, device="meta").features(images).is_meta  # judged where the network is
    assert network.resize == "bicubic antialiased 28"
    assert not torch.equal(network.features(images)[0], network.features(images)[1])


def test_a_folder_without_a_network_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="holds no vision network"):
        load_vision(tmp_path)
