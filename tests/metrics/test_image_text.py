"""Scores of images and prompts: their means, bounds and differences to AR's, and the packages behind them."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from support.configs import composed
from support.paths import SUPPORT
from torch import nn

from lantern.errors import CheckpointError, LanternError
from lantern.metrics.image_text import AT_ONCE, ImageTextScore
from lantern.metrics.networks.image_reward import load_image_reward


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
    metric, count = ImageTextScore("bright", Brightness()), AT_ONCE + 8
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


def test_the_bounds_of_a_loss_cover():
    """95 times in 100; 60 images whose prompts differ far more than the methods do."""
    rng, inside = np.random.default_rng(0), []
    metric = ImageTextScore("bright", Brightness(), resamples=150)
    prompts = [("light", "dark")[i % 2] for i in range(60)]
    for _ in range(120):
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


FILES = {
    "clip_score": {"folder": "{}"},
    "pick_score": {"folder": "{}", "tokenizer": "{}"},
    "hps_v2": {"checkpoint": "{}/none.pt", "tokenizer": "{}"},
    "inception_score": {"weights": "{}/none.pth"},
}


def configured(name: str, **settings: str) -> DictConfig:
    """The configuration of a metric with settings of its network."""
    overrides = [f"metrics.{name}.network.{key}={value}" for key, value in settings.items()]
    return composed("evaluate", f"metrics=[{name}]", *overrides).metrics[name]


@pytest.mark.parametrize("name", FILES)
def test_missing_files_of_a_metric_are_one_sentence(tmp_path, name):
    from lantern.cli.error_messages import user_error

    with pytest.raises(Exception, match="give") as caught:
        instantiate(configured(name, **{key: value.format(tmp_path) for key, value in FILES[name].items()}))
    assert isinstance(user_error(caught.value), CheckpointError)
    assert "\n" not in str(user_error(caught.value))


def test_a_metrics_yaml_builds_it_from_a_local_folder(tmp_path, monkeypatch):
    """Catches a setting that the loader does not know."""
    monkeypatch.syspath_prepend(SUPPORT)
    from support.clips import save_clip

    save_clip(tmp_path)
    images = torch.rand(4, 3, 8, 8)
    pick = instantiate(configured("pick_score", folder=tmp_path, tokenizer=tmp_path))
    clip = instantiate(configured("clip_score", folder=tmp_path))
    assert pick(images, ["bad"] * 4)["pick_score"] == pytest.approx(100 * clip(images, ["bad"] * 4)["clip_score"])
    assert clip.protocol([])["clip_score_resize"] == "bicubic antialiased 8"


def test_image_reward_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ImageReward", None)
    with pytest.raises(LanternError, match="pip install image-reward"):
        load_image_reward("a", "b")


def test_image_reward_calls_the_package_with_bytes_and_rejects_missing_files(tmp_path, monkeypatch):
    """A stand-in for the package: rewards the share of white pixels."""
    package = ModuleType("ImageReward")

    class Body(nn.Module):
        def score(self, prompt, picture):
            return float((np.asarray(picture) == 255).all(-1).mean()) + len(prompt)

    package.load = lambda name, device, med_config: Body()
    monkeypatch.setitem(sys.modules, "ImageReward", package)
    with pytest.raises(CheckpointError, match=r"ImageReward\.pt"):
        load_image_reward(tmp_path / "none.pt", tmp_path)
    for name in ("ImageReward.pt", "med_config.json"):
        (tmp_path / name).touch()
    network = load_image_reward(tmp_path / "ImageReward.pt", tmp_path / "med_config.json")
    images = torch.zeros(2, 3, 4, 4)
    images[1, :, :2] = 1
    assert network.scores(images, ["a", "ab"]).tolist() == [1, 2.5]
    assert "image-reward" in ImageTextScore("image_reward", network).protocol([])["image_reward_score_resize"]
