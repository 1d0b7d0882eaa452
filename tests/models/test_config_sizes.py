"""A config.json that describes another model, or none."""

import json

import pytest
from support.tiny_weights import write_tiny_weights

from lantern.drafters.loading import eagle_layer
from lantern.errors import CheckpointError
from lantern.models.llamagen.weights_folder import load_target, load_tokenizer
from lantern.scenes.critic import load_critic


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


def load(part: str, folder, weights):
    if part == "target":
        return load_target(folder, weights / "tokenizer", 2.0, "float32", "cpu")
    if part == "drafter":
        return eagle_layer(folder, load("target", weights / "target", weights))
    return {"tokenizer": load_tokenizer, "critic": load_critic}[part](folder)


@pytest.mark.parametrize(("part", "place", "value"), [
    ("target", "architecture.dim", "x"), ("target", "architecture.num_heads", 3), ("target", "architecture.grid", [16]),
    ("target", "architecture.vocab_size", 10**15), ("target", "architecture", [1]), ("target", "word_seed", None),
    ("tokenizer", "surprise", 1), ("tokenizer", "groups", 3), ("tokenizer", "decoder_multipliers", []),
    ("drafter", "num_heads", 0), ("drafter", "hidden_dim", -1), ("critic", "size", -1),
])  # fmt: skip
def test_sizes_of_no_such_model_are_one_sentence(part, place, value, weights, tmp_path):
    """Catches a traceback of the layer that meets the value first, and one that is met only while decoding. None: the
    key is left out."""
    (tmp_path / "model.safetensors").symlink_to(weights / part / "model.safetensors")
    config = json.loads((weights / part / "config.json").read_text())
    *outer, last = place.split(".")
    inner = config[outer[0]] if outer else config
    inner.pop(last, None)
    if value is not None:
        inner[last] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError) as caught:
        load(part, tmp_path, weights)
    assert f"{tmp_path}/config.json does not describe a" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["target", "tokenizer", "drafter", "critic"])
def test_a_config_that_is_no_object_is_one_sentence(part, weights, tmp_path):
    (tmp_path / "model.safetensors").symlink_to(weights / part / "model.safetensors")
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(CheckpointError, match="holds no JSON object"):
        load(part, tmp_path, weights)


@pytest.mark.parametrize("part", ["target", "tokenizer", "drafter", "critic"])
def test_weights_cut_short_in_a_download_are_one_sentence(part, weights, tmp_path):
    whole = (weights / part / "model.safetensors").read_bytes()
    (tmp_path / "config.json").symlink_to(weights / part / "config.json")
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"not a readable safetensors file \(.*\); copy it again"):
        load(part, tmp_path, weights)


@pytest.mark.parametrize("part", ["target", "tokenizer", "drafter", "critic"])
@pytest.mark.parametrize("goal", ["nowhere", "itself"])
def test_links_that_lead_nowhere_are_one_sentence_and_others_are_followed(part, goal, weights, tmp_path):
    (tmp_path / "good").symlink_to(weights / part)
    load(part, tmp_path / "good", weights)
    (tmp_path / "itself").symlink_to(tmp_path / goal)
    with pytest.raises(CheckpointError, match=str(tmp_path / "itself")):
        load(part, tmp_path / "itself", weights)
