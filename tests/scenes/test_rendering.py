"""A seed determines its image on every machine and its split; textures have natural spectra."""

import hashlib
import itertools
import multiprocessing

import numpy as np
import pytest

from lantern.scenes.captions import COLOURS, SHAPES, TEXTURES, is_held_out
from lantern.scenes.rendering import PAINTS, SPLITS, describe, render, render_caption, split_of

SEEDS = [3, 10**9 + 3, 2 * 10**9 + 3, 3 * 10**9 + 3]


def digest(seed: int) -> str:
    return hashlib.sha256(render(seed)[0].tobytes()).hexdigest()


def test_a_seed_gives_the_same_picture_in_another_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # spawned: nothing of this process is inherited
        assert pool.map(digest, SEEDS[::-1]) == [digest(seed) for seed in SEEDS[::-1]]
    assert len({digest(seed) for seed in SEEDS}) == len(SEEDS)


def test_splits_share_no_seed_and_a_seed_beyond_them_is_an_error():
    ranges = sorted(SPLITS.values(), key=lambda seeds: seeds.start)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(ranges))
    assert [split_of(seed) for seed in SEEDS] == ["train", "validation", "test", "novel"]
    with pytest.raises(ValueError, match="-1"):
        render(-1)


@pytest.mark.parametrize("split", SPLITS)
def test_only_the_novel_split_draws_held_out_triples(split):
    start = SPLITS[split].start
    scenes = [describe(seed) for seed in range(start, start + 3000)]
    assert {is_held_out(scene) for scene in scenes} == {split == "novel"}
    assert {scene.texture for scene in scenes} == set(TEXTURES)
    assert {scene.colour for scene in scenes} >= set(COLOURS)
    share_bare = np.mean([scene.shape == "none" for scene in scenes])
    assert share_bare == 0 if split == "novel" else 0.12 < share_bare < 0.18


@pytest.mark.parametrize("texture", TEXTURES)
def test_the_power_of_a_texture_falls_like_that_of_natural_images(texture):
    """Power f^-2 is natural; white noise (0), a blank (noise too) and a smooth gradient (-4) all fall outside."""
    window = np.hanning(128)[:, None] * np.hanning(128)
    frequency = 128 * np.hypot(np.fft.fftfreq(128)[:, None], np.fft.rfftfreq(128)[None])
    grey = np.stack([render_caption(texture, seed).mean(-1) for seed in range(8)])
    power = (np.abs(np.fft.rfft2((grey - grey.mean((1, 2), keepdims=True)) * window)) ** 2).mean(0)
    rings = np.arange(3, 56)
    profile = [power[np.abs(frequency - ring) < 0.5].mean() for ring in rings]
    slope = np.polyfit(np.log(rings), np.log(profile), 1)[0]
    assert -3.5 < slope < -1.5


@pytest.mark.parametrize("shape", SHAPES[:-1])
@pytest.mark.parametrize("colour", COLOURS)
def test_an_object_has_its_colour(shape, colour):
    """Pixels that depend on the colour must be nearest to the colour of the caption."""
    image = render_caption(f"a {colour} {shape} on sand", 5).astype(float)
    other = "black" if colour != "black" else "white"
    changed = np.abs(image - render_caption(f"a {other} {shape} on sand", 5)).sum(-1)
    pixels = image[changed > 60]
    assert 0.08 < len(pixels) / 128**2 < 0.5
    tone = np.median(pixels, axis=0)
    distances = {name: np.linalg.norm(tone - 0.85 * np.array(paint)) for name, paint in PAINTS.items()}
    assert min(distances, key=distances.get) == colour
