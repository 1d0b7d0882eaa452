"""Captions and attributes agree; training splits contain no held-out triple."""

import pytest
import torch

from lantern.errors import LanternError
from lantern.models.conditioners import SCENE_WORDS, WordFeatures
from lantern.scenes.captions import (
    BARE_SCENES,
    COLOURS,
    HELD_OUT_SCENES,
    NONE,
    SEEN_SCENES,
    SHAPES,
    TEXTURES,
    VOCABULARY,
    is_held_out,
    parse_caption,
)  # fmt: skip


def test_the_default_vocabulary_of_targets_is_that_of_the_scenes():
    assert VOCABULARY == SCENE_WORDS


def test_every_caption_returns_to_its_scene_and_uses_only_known_words():
    for scene in (*BARE_SCENES, *SEEN_SCENES, *HELD_OUT_SCENES):
        assert parse_caption(scene.caption) == scene
        assert set(scene.caption.split()) <= set(VOCABULARY)


@pytest.mark.parametrize("caption", ["a pink sphere on wood", "a red sphere", "a sphere red on wood", "red", "", "a"])
def test_a_caption_that_is_no_scene_is_an_error_by_name(caption):
    with pytest.raises(LanternError, match=repr(caption)):
        parse_caption(caption)


def test_an_unknown_word_is_named():
    with pytest.raises(LanternError, match="unknown word 'pink'"):
        parse_caption("a pink sphere on wood")


def test_a_tenth_of_the_triples_is_held_out_and_every_pair_of_words_is_still_seen():
    num_triples = len(TEXTURES) * (len(SHAPES) - 1) * len(COLOURS)
    assert 0.09 < len(HELD_OUT_SCENES) / num_triples < 0.11
    assert not set(HELD_OUT_SCENES) & set(SEEN_SCENES)
    assert len(SEEN_SCENES) + len(HELD_OUT_SCENES) == num_triples
    assert len(BARE_SCENES) == len(TEXTURES)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        held_out = [(scene[first], scene[second]) for scene in HELD_OUT_SCENES]
        assert len(set(held_out)) == len(held_out)


def test_bare_textures_are_never_held_out():
    assert all(scene.shape == NONE and not is_held_out(scene) for scene in BARE_SCENES)


def test_a_caption_longer_than_the_model_reads_is_cut_with_a_warning(caplog):
    words = WordFeatures(list("abcdef"), dim=8, length=4)
    long, short = words(["a b c d e f"]), words(["a b c d"])
    assert all(torch.equal(a, b) for a, b in zip(long, short, strict=True))
    assert "has 6 words; those behind the first 4 are cut" in caplog.text


def test_long_captions_are_reported_once(caplog):
    """Catches a training whose log has a line for every long caption of every batch."""
    words = WordFeatures(list("abcdef"), dim=8, length=4)
    for _ in range(3):
        words(["a b c d e f", "f e d c b a", "a"])
    assert [record.getMessage().split("'")[1] for record in caplog.records] == ["a b c d e f"]
