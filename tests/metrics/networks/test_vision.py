import json

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
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):  # else normalised by a guess
        load_vision(tmp_path)
    sizes = {"size": {"shortest_edge": 56}, "crop_size": {"height": 42, "width": 42}}
    normal = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.2, 0.2]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(sizes | normal))
    if body().config.model_type == "clip_vision_model":  # it takes its own size alone
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(normal))
    network = load_vision(tmp_path)
    images = torch.rand(2, 3, 50, 50)
    assert network.features(images).shape == (2, 16)
    assert load_vision(tmp_path, device="meta").features(images).is_meta  # judged where the network is
    assert network.resize == f"bicubic antialiased {28 if isinstance(body(), CLIPVisionModel) else 42}"
    assert network.pixels.mean.flatten().tolist() == pytest.approx([0.4, 0.5, 0.6])
    assert not torch.equal(network.features(images)[0], network.features(images)[1])


def test_a_folder_without_a_network_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="holds no vision network"):
        load_vision(tmp_path)
