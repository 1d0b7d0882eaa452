"""The critic learns, ignores colours of bare textures, and survives saving; its shares count the right answers."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate, one_hot

from lantern.errors import LanternError
from lantern.models.checkpoints import save_weights
from lantern.scenes.critic import (
    ATTRIBUTES,
    NUM_FEATURES,
    Critic,
    as_images,
    judge_images,
    load_critic,
    scene_references,
)  # fmt: skip
from lantern.scenes.rendering import render_caption
from lantern.scenes.tasks import CriticTask

CAPTIONS = ["a red sphere on wood", "a blue cube on sand", "grass", "a white ring on water"] * 2


@pytest.fixture(scope="module")
def batch():
    images = np.stack([render_caption(caption, seed) for seed, caption in enumerate(CAPTIONS)])
    return {"image": torch.from_numpy(images), "caption": CAPTIONS}


@pytest.fixture
def critic():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Critic(width=8, size=128)


def test_a_few_steps_on_eight_scenes_teach_their_names(critic, batch):
    task = CriticTask(critic, lr=1e-2, weight_decay=0.0)
    task.log = lambda *_, **__: None
    bare = {"image": batch["image"][2::4], "caption": CAPTIONS[2::4]}
    assert torch.isfinite(task.training_step(bare, 0))  # no colour is asked for
    optimizer = torch.optim.AdamW(critic.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        losses.append(task.training_step(batch, 0))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0]


def test_a_critic_comes_back_from_its_folder(critic, batch, tmp_path):
    save_weights(tmp_path, critic.state_dict(), critic.config)
    images = as_images(batch["image"])
    features = load_critic(tmp_path).features(images)
    assert features.shape == (len(CAPTIONS), NUM_FEATURES)
    torch.testing.assert_close(features, critic.eval().features(images))
    torch.testing.assert_close(critic.heads["shape"](features), critic(images)["shape"])
    with pytest.raises(LanternError, match=r"no critic is in .*none: .* give metrics=\[pairs\]"):
        load_critic(tmp_path / "none")
    assert load_critic(tmp_path, device="meta").features(images).is_meta  # judged where the network is


def test_images_of_another_size_are_brought_to_its_own():
    """Catches a critic that fails on, or misclassifies, the larger images of released models."""
    critic = Critic(width=8, size=32).eval()
    small = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    large = small.repeat_interleave(12, 2).repeat_interleave(12, 3)
    expected = critic.features(interpolate(large, (32, 32), mode="bicubic", antialias=True).clamp(0, 1))
    torch.testing.assert_close(critic.features(large), expected)


ASKED = ["a red sphere on wood", "a blue cube on wood", "wood", "wood"]
ANSWERS = [("wood", "sphere", "red"), ("wood", "cube", "red"), ("wood", "none", "red"), ("sand", "ring", "red")]


def answer(images):
    """A critic that reads the number of its answer from an image's first pixel."""
    rows = [ANSWERS[int(number)] for number in images[:, 0, 0, 0]]
    numbers = {name: [words.index(row[k]) for row in rows] for k, (name, words) in enumerate(ATTRIBUTES.items())}
    return {name: one_hot(torch.tensor(n), len(ATTRIBUTES[name])).float() for name, n in numbers.items()}


def test_colour_counts_only_where_it_is_asked_and_all_needs_everything():
    numbered = torch.arange(4.0).view(4, 1, 1, 1)
    right = judge_images(answer, numbered, ASKED)
    shares = {name: float(values.nanmean()) for name, values in right.items()}
    assert shares == pytest.approx({"texture": 0.75, "shape": 0.75, "colour": 0.5, "all": 0.5})
    assert judge_images(answer, numbered[2:], ASKED[2:])["colour"].isnan().all()
    for name, values in judge_images(answer, numbered, ASKED, batch_size=1).items():
        torch.testing.assert_close(values, right[name], equal_nan=True)
    with pytest.raises(LanternError, match="pink"):
        judge_images(answer, numbered[:1], ["a pink sphere on wood"])


def test_references_show_the_captions_and_reject_other_sentences():
    scenes = scene_references(("wood", "a red sphere on sand"), 3)
    assert scenes.shape == (3, 3, 128, 128)
    assert 0 <= scenes.min() < scenes.max() <= 1
    assert not torch.equal(scenes[0], scenes[2])  # the same caption, another seed
    with pytest.raises(LanternError, match=r"fidelity\.references\.path"):
        scene_references(("sphere wood",), 1)
