"""Networks in miniature, from local folders: scores by the model itself, and folders that hold something else."""

import json
import re
import string
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hydra.utils import instantiate
from omegaconf import DictConfig
from PIL import Image
from safetensors.torch import load_file, save_file
from support.configs import composed
from torch import nn
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from lantern.cli.error_messages import user_error
from lantern.errors import CheckpointError, LanternError
from lantern.metrics.networks import BATCH_SIZE, ImageTextScore, load_clip, load_vision

PROMPTS = ["a red ball", "bad", "a red bead on a mad dog pad"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
LETTERS = string.ascii_lowercase[:18]
WORDS = ["re", "red</w>", "<|startoftext|>", "<|endoftext|>"]
VOCAB_SIZE = 2 * len(LETTERS) + len(WORDS)
TEXT = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 12, "bos_token_id": 38, "eos_token_id": 39}
CLIP = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def save_tokenizer(folder: Path) -> None:
    """Letters, and one word."""
    names = [*LETTERS, *(letter + "</w>" for letter in LETTERS), *WORDS]
    vocab = {name: number for number, name in enumerate(names)}
    transformers.CLIPTokenizer(vocab=vocab, merges=[("r", "e"), ("re", "d</w>")]).save_pretrained(folder)


def save_clip(folder: Path) -> transformers.CLIPModel:
    """Random, as folders of `transformers` hold it."""
    torch.manual_seed(0)
    vision = CLIP | {"image_size": 8, "patch_size": 4}
    config = transformers.CLIPConfig(text_config=CLIP | TEXT, vision_config=vision, projection_dim=8)
    model = transformers.CLIPModel(config).eval()
    for value in model.parameters():  # else all images look alike
        value.data += 0.3 * torch.randn_like(value)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return folder


def test_scores_are_the_models_own_logits_without_its_temperature(tmp_path):
    """Catches pixels in another range, a prompt read at its pads, texts and images of different rows."""
    model = save_clip(tmp_path)
    images = torch.randint(256, (3, 3, 8, 8)) / 255
    network = load_clip(tmp_path, scale=2.0)
    found, tokenizer = network.scores(images, PROMPTS), transformers.AutoTokenizer.from_pretrained(tmp_path)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD))
    for row, prompt in enumerate(PROMPTS):
        ids = tokenizer(prompt, truncation=True, max_length=12, return_tensors="pt").input_ids
        logit = model(input_ids=ids, pixel_values=((images - mean) / std)[row : row + 1]).logits_per_image
        torch.testing.assert_close(found[row], 2 * logit[0, 0] / model.logit_scale.exp(), rtol=0, atol=1e-6)
    assert network.resize == "shortest edge 8 bicubic, centre crop 8 x 8"
    assert network.scores(torch.rand(2, 3, 20, 20), PROMPTS[:2]).shape == (2,)


def without_a_layer(folder: Path) -> None:
    save_clip(folder)
    state = load_file(folder / "model.safetensors")
    del state["text_projection.weight"]
    save_file(state, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("make", [Path.mkdir, without_a_layer])
def test_a_folder_without_a_whole_clip_is_one_sentence(tmp_path, make):
    """Catches a text side, or a layer, that transformers leaves at random."""
    make(tmp_path / "clip")
    with pytest.raises(CheckpointError, match="holds no CLIP") as caught:
        load_clip(tmp_path / "clip")
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_models_own_tokenizer_is_rejected_and_another_may_be_given(tmp_path, tokenizer_folder):
    """transformers makes up a tokenizer of two tokens, under which all prompts are alike."""
    save_clip(tmp_path / "clip")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "clip" / name).unlink()
    with pytest.raises(CheckpointError, match="needs a tokenizer of 40 tokens"):
        load_clip(tmp_path / "clip")
    assert load_clip(tmp_path / "clip", tokenizer=tokenizer_folder).scores(torch.rand(1, 3, 8, 8), ["bad"]).shape


@pytest.mark.parametrize("is_clip", [False, True])
def test_a_vision_network_of_a_local_folder_sees_wide_images_as_its_own_processor_gives_them(tmp_path, is_clip):
    """Catches wide images that are squashed, and a crop, a size or a filter that is lost."""
    with pytest.raises(CheckpointError, match="holds no vision network"):
        load_vision(tmp_path)
    clip, dino = transformers.CLIPVisionConfig(intermediate_size=16, **SMALL), transformers.Dinov2Config(**SMALL)
    body = transformers.CLIPVisionModel(clip) if is_clip else transformers.Dinov2Model(dino)
    body.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):  # else normalised by a guess
        load_vision(tmp_path)
    side = 28 if is_clip else 42  # CLIP takes its own size alone
    settings = {"size": {"shortest_edge": 56}, "crop_size": {"height": side, "width": side}, "resample": 2}
    settings |= {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
    settings |= {"image_processor_type": "CLIPImageProcessor" if is_clip else "BitImageProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    network = load_vision(tmp_path)
    images = torch.randint(256, (2, 3, 50, 100)) / 255
    assert network.features(images).shape == (2, 16)
    assert load_vision(tmp_path, device="meta").features(images).is_meta  # judged where the network is
    assert network.resize == f"shortest edge 56 bilinear, centre crop {side} x {side}"
    assert not torch.equal(network.features(images)[0], network.features(images)[1])
    resized = Image.fromarray((images[0] * 255).round().byte().permute(1, 2, 0).numpy()).resize((112, 56), 2)
    left, top = (112 - side) // 2, (56 - side) // 2
    cropped = to_tensor(resized.crop((left, top, left + side, top + side)))
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    torch.testing.assert_close(network.pixels(images)[0], (cropped - mean) / std, atol=1e-5, rtol=0)


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def configured(name: str, **settings: str) -> DictConfig:
    """The configuration of a metric with settings of its network."""
    overrides = [f"metrics.{name}.network.{key}={value}" for key, value in settings.items()]
    return composed("evaluate", f"metrics=[{name}]", *overrides).metrics[name]


def test_a_metrics_yaml_builds_it_from_a_local_folder_or_is_one_sentence(tmp_path):
    """Catches a setting that the loader does not know."""
    with pytest.raises(Exception, match="give") as caught:
        instantiate(configured("pick_score", folder=tmp_path / "none.pt", tokenizer=tmp_path))
    assert isinstance(user_error(caught.value), CheckpointError)
    save_clip(tmp_path)
    images = torch.rand(4, 3, 8, 8)
    pick = instantiate(configured("pick_score", folder=tmp_path, tokenizer=tmp_path))
    clip = instantiate(configured("clip_score", folder=tmp_path))
    assert pick(images, ["bad"] * 4)["pick_score"] == pytest.approx(100 * clip(images, ["bad"] * 4)["clip_score"])
    assert clip.protocol([])["clip_score_resize"] == "shortest edge 8 bicubic, centre crop 8 x 8"


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
    assert metric.network.calls == 2 * count  # every set once


def test_the_protocol_names_weights_and_resize_method():
    one, other = Brightness(), Brightness()
    other.scale.data += 1
    found = ImageTextScore("bright", one).protocol([])
    assert set(found) == {"bright_score_network", "bright_score_resize"}
    assert found["bright_score_network"] != ImageTextScore("bright", other).protocol([])["bright_score_network"]


def test_a_prompt_that_is_cut_is_told_and_none_is_refused(tmp_path):
    """Catches a score of the beginning of a prompt that passes for that of the prompt."""
    save_clip(tmp_path)
    metric = ImageTextScore("clip", load_clip(tmp_path))
    long = "a red bead on a mad dog pad " * 4
    assert metric.warnings(["bad", "a red ball"]) == []
    (told,) = metric.warnings(["bad", long, long, "bad"])
    assert re.search(r"\b12\b.*\b1 of 2\b", told)
    with pytest.raises(LanternError, match="prompts="):
        metric.prepare(["bad", ""])


def test_a_network_and_its_tokenizer_come_by_hub_id(tmp_path, monkeypatch):
    """Catches a Hub id that is taken for a folder of this machine."""
    save_clip(tmp_path / "clip")

    def snapshot(repository: str, allow_patterns: list[str], **_: object) -> str:
        assert repository == "openai/clip"
        return str(tmp_path / "clip")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    found = [
        load_clip(source, tokenizer=source).scores(torch.zeros(1, 3, 8, 8), ["bad"])
        for source in ("openai/clip", tmp_path / "clip")
    ]
    assert torch.equal(*found)
