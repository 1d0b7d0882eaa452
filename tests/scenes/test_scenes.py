"""Captions, images and data sets of the toy world: a seed determines its image, its caption and its split."""

import hashlib
import multiprocessing

import numpy as np
import pytest

from lantern.errors import LanternError
from lantern.models.conditioners import SCENE_WORDS
from lantern.scenes import captions
from lantern.scenes.rendering import PAINTS, SPLITS, describe, render, render_caption, split_of
from lantern.scenes.scene_splits import RenderedScenes

SEEDS = [3, 10**9 + 3, 2 * 10**9 + 3, 3 * 10**9 + 3]


def test_every_caption_returns_to_its_scene_and_uses_only_known_words():
    for scene in (*captions.BARE_SCENES, *captions.SEEN_SCENES, *captions.HELD_OUT_SCENES):
        for caption in (scene.caption, f"({scene.caption.capitalize()}, -) ."):
            assert captions.parse_caption(caption) == scene
        assert set(scene.caption.split()) <= set(captions.VOCABULARY)
    assert captions.VOCABULARY == SCENE_WORDS  # the default of targets


@pytest.mark.parametrize("caption", ["a pink sphere on wood", "a sphere red on wood", ""])
def test_a_caption_that_is_no_scene_is_an_error_by_name(caption):
    said = "unknown word 'pink' in .* know 'a' 'on' " if "pink" in caption else repr(caption)
    with pytest.raises(LanternError, match=said):
        captions.parse_caption(caption)


def test_a_tenth_of_the_triples_is_held_out_and_every_pair_of_words_is_still_seen():
    num_triples = len(captions.TEXTURES) * (len(captions.SHAPES) - 1) * len(captions.COLOURS)
    assert 0.09 < len(captions.HELD_OUT_SCENES) / num_triples < 0.11
    assert not set(captions.HELD_OUT_SCENES) & set(captions.SEEN_SCENES)
    assert len(captions.SEEN_SCENES) + len(captions.HELD_OUT_SCENES) == num_triples
    for first, second in ((0, 1), (0, 2), (1, 2)):
        held_out = [(scene[first], scene[second]) for scene in captions.HELD_OUT_SCENES]
        assert len(set(held_out)) == len(held_out)


def digest(seed: int) -> str:
    return hashlib.sha256(render(seed)[0].tobytes()).hexdigest()


@pytest.mark.full
def test_a_seed_gives_the_same_picture_in_another_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # spawned: nothing of this process is inherited
        assert pool.map(digest, SEEDS[::-1]) == [digest(seed) for seed in SEEDS[::-1]]
    assert len({digest(seed) for seed in SEEDS}) == len(SEEDS)


def test_splits_are_ranges_of_seeds_and_a_seed_beyond_them_is_an_error():
    assert [split_of(seed) for seed in SEEDS] == ["train", "validation", "test", "novel"]
    with pytest.raises(ValueError, match="-1"):
        render(-1)


@pytest.mark.parametrize("split", SPLITS)
def test_only_the_novel_split_draws_held_out_triples(split):
    start = SPLITS[split].start
    scenes = [describe(seed) for seed in range(start, start + 3000)]
    assert {captions.is_held_out(scene) for scene in scenes} == {split == "novel"}
    assert {scene.texture for scene in scenes} == set(captions.TEXTURES)
    assert {scene.colour for scene in scenes} >= set(captions.COLOURS)
    share_bare = np.mean([scene.shape == "none" for scene in scenes])
    assert share_bare == 0 if split == "novel" else 0.12 < share_bare < 0.18


@pytest.mark.parametrize("shape", captions.SHAPES[:-1])
@pytest.mark.parametrize("colour", captions.COLOURS)
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


def test_another_seed_is_another_series():
    first, other = (RenderedScenes(6, 3, seed).split("train") for seed in (0, 1))
    assert len(first) == 6
    assert first.fingerprint != other.fingerprint
    assert other[0]["caption"] != first[0]["caption"] or (other[0]["image"] != first[0]["image"]).any()
