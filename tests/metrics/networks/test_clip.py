"""CLIPs in miniature: scores by the model's own forward, and folders that hold something else."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.clips import SIZES, save_clip, save_tokenizer
from support.paths import GOLDEN
from transformers import AutoTokenizer, CLIPVisionConfig, CLIPVisionModel, Dinov2Config, Dinov2Model

from lantern.errors import CheckpointError
from lantern.metrics.networks.clip import CLIP_PIXELS, load_clip
from lantern.metrics.networks.open_clip import load_open_clip

PROMPTS = ["a red ball", "bad", "a red bead on a mad dog pad"]
HEADS = {"vision_heads": 2, "text_heads": 2}


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return folder


def test_scores_are_the_models_own_logits_without_its_temperature(tmp_path):
    """Catches pixels in another range, a prompt read at its pads, texts and images of different rows."""
    model = save_clip(tmp_path)
    images = torch.rand(3, 3, 8, 8)
    found = load_clip(tmp_path, scale=2.0).scores(images, PROMPTS)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in CLIP_PIXELS.values())
    for row, prompt in enumerate(PROMPTS):
        ids = tokenizer(prompt, truncation=True, max_length=12, return_tensors="pt").input_ids
        logit = model(input_ids=ids, pixel_values=((images - mean) / std)[row : row + 1]).logits_per_image
        torch.testing.assert_close(found[row], 2 * logit[0, 0] / model.logit_scale.exp(), rtol=0, atol=1e-6)


def test_images_of_any_size_are_resized_and_the_row_records_how(tmp_path):
    save_clip(tmp_path)
    network = load_clip(tmp_path)
    assert network.resize == "bicubic antialiased 8"
    assert network.scores(torch.rand(2, 3, 20, 20), PROMPTS[:2]).shape == (2,)
    elsewhere = load_clip(tmp_path, device="meta")
    assert elsewhere.body.get_image_features(elsewhere.pixels(torch.rand(2, 3, 20, 20))).pooler_output.is_meta


def test_a_file_of_open_clip_scores_as_open_clip_does(tokenizer_folder):
    """The expected cosines are open_clip 3.3.0's own. Catches queries, keys and values in another order, a projection
    not transposed, and OpenAI's approximate GELU."""
    expected = load_file(GOLDEN / "open_clip_tiny_expected.safetensors")
    network = load_open_clip(GOLDEN / "open_clip_tiny.pt", tokenizer_folder, **HEADS)
    ids = network.tokenizer(PROMPTS, padding=True, truncation=True, max_length=12, return_tensors="pt")
    assert torch.equal(ids.input_ids * ids.attention_mask, expected["ids"])
    found = network.scores(expected["images"], PROMPTS)
    torch.testing.assert_close(found, expected["cosines"], rtol=0, atol=1e-5)
    elsewhere = load_open_clip(GOLDEN / "open_clip_tiny.pt", tokenizer_folder, **HEADS, device="meta")
    assert elsewhere.body.get_image_features(elsewhere.pixels(expected["images"])).pooler_output.is_meta
    assert network.resize == "bicubic antialiased 8"


def empty(folder: Path) -> None:
    folder.mkdir()


def vision_only(folder: Path) -> None:
    vision = SIZES | {"image_size": 8, "patch_size": 4}
    CLIPVisionModel(CLIPVisionConfig(**vision)).save_pretrained(folder)


def foreign(folder: Path) -> None:
    Dinov2Model(Dinov2Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(folder)


@pytest.mark.parametrize("make", [lambda folder: None, empty, vision_only, foreign])
def test_a_folder_without_a_whole_clip_is_one_sentence(tmp_path, make):
    """Catches a text side that transformers leaves at random."""
    make(tmp_path / "clip")
    with pytest.raises(CheckpointError, match="holds no CLIP with both") as caught:
        load_clip(tmp_path / "clip")
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_layer_are_rejected(tmp_path):
    save_clip(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    del state["text_projection.weight"]
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lack text_projection\.weight"):
        load_clip(tmp_path)


def test_a_folder_without_the_models_own_tokenizer_is_rejected_and_another_may_be_given(tmp_path, tokenizer_folder):
    """transformers makes up a tokenizer of two tokens, under which all prompts are alike."""
    save_clip(tmp_path / "clip")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "clip" / name).unlink()
    with pytest.raises(CheckpointError, match="needs a tokenizer of 40 tokens"):
        load_clip(tmp_path / "clip")
    assert load_clip(tmp_path / "clip", tokenizer=tokenizer_folder).scores(torch.rand(1, 3, 8, 8), ["bad"]).shape


def test_a_file_that_open_clip_did_not_save_is_one_sentence(tmp_path, tokenizer_folder):
    save_clip(tmp_path)
    with pytest.raises(CheckpointError, match="no CLIP in open_clip's layout"):
        load_open_clip(tmp_path / "model.safetensors", tokenizer_folder)
    with pytest.raises(CheckpointError, match="no weights at"):
        load_open_clip(tmp_path / "none.pt", tokenizer_folder)
    shutil.copy(GOLDEN / "open_clip_tiny.pt", tmp_path / "other.pt")
    state = torch.load(tmp_path / "other.pt", weights_only=True)["state_dict"]
    torch.save({"state_dict": {k: v for k, v in state.items() if k != "visual.ln_pre.bias"}}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"missing vision_model\.pre_layrnorm\.bias"):
        load_open_clip(tmp_path / "other.pt", tokenizer_folder, **HEADS)
