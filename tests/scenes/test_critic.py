"""The critic learns, ignores the colour of bare textures, and is unchanged by saving and loading."""

import numpy as np
import pytest
import torch
from torch import Generator

from lantern.errors import LanternError
from lantern.models.checkpoints import save_weights
from lantern.scenes.critic import IGNORED, NUM_FEATURES, Critic, as_images, labels_of, load_critic
from lantern.scenes.rendering import render_caption
from lantern.scenes.tasks import CriticTask, augment

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
    optimizer = torch.optim.AdamW(critic.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        losses.append(task.training_step(batch, 0))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0]


def test_a_batch_of_bare_textures_has_a_finite_loss(critic, batch):
    task = CriticTask(critic, lr=1e-2, weight_decay=0.0)
    task.log = lambda *_, **__: None
    assert torch.isfinite(task.training_step({"image": batch["image"][2::4], "caption": CAPTIONS[2::4]}, 0))


def test_labels_follow_the_captions():
    labels = labels_of(["a yellow sphere on clouds", "wood"])
    assert {name: label.tolist() for name, label in labels.items()} == {
        "texture": [0, 1], "shape": [0, 4], "colour": [1, IGNORED],
    }  # fmt: skip


def test_features_have_the_promised_size_and_feed_the_heads(critic, batch):
    critic.eval()
    images = as_images(batch["image"])
    features = critic.features(images)
    assert features.shape == (len(CAPTIONS), NUM_FEATURES)
    torch.testing.assert_close(critic.heads["shape"](features), critic(images)["shape"])


def test_augmentation_repeats_with_its_seed_and_keeps_size_and_range(batch):
    images = as_images(batch["image"])
    first, again, other = (augment(images, Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == images.shape
    assert first.min() >= 0
    assert first.max() <= 1


def test_a_critic_comes_back_from_its_folder(critic, batch, tmp_path):
    save_weights(tmp_path, critic.state_dict(), critic.config)
    images = as_images(batch["image"])
    torch.testing.assert_close(load_critic(tmp_path).features(images), critic.eval().features(images))
    assert load_critic(tmp_path, device="meta").features(images).is_meta  # judged where the network is


def test_missing_cut_and_foreign_weights_are_one_clear_error_each(critic, tmp_path):
    with pytest.raises(LanternError, match=r"config\.json"):
        load_critic(tmp_path)
    save_weights(tmp_path, critic.state_dict(), {"width": 16, "size": 128})
    with pytest.raises(LanternError, match="does not fit"):
        load_critic(tmp_path)
    save_weights(tmp_path, critic.state_dict(), {"depth": 1})
    with pytest.raises(LanternError, match="depth"):
        load_critic(tmp_path)
    save_weights(tmp_path, critic.state_dict(), critic.config)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(LanternError, match="not a readable safetensors"):
        load_critic(tmp_path)


def test_images_of_another_size_are_brought_to_its_own():
    """Catches a critic that fails on, or misclassifies, the larger images of released models."""
    critic = Critic(width=8, size=32).eval()
    small = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    large = small.repeat_interleave(12, 2).repeat_interleave(12, 3)
    expected = critic.features(
        torch.nn.functional.interpolate(large, (32, 32), mode="bicubic", antialias=True).clamp(0, 1)
    )
    torch.testing.assert_close(critic.features(large), expected)
