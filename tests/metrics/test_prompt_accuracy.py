"""Shares are counted over the right images; the interval covers what it should."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from lantern.errors import LanternError
from lantern.scenes.captions import COLOURS, SHAPES, TEXTURES
from lantern.scenes.critic import judge_images

CAPTIONS = ["a red sphere on wood", "a blue cube on wood", "wood", "wood"]


def critic_of(*answers):
    """A critic that reads its answer's number from an image's first pixel."""
    words = {"texture": TEXTURES, "shape": SHAPES, "colour": COLOURS}

    def critic(images):
        rows = [answers[int(i)] for i in images[:, 0, 0, 0]]
        numbers = {name: [words[name].index(row[k]) for row in rows] for k, name in enumerate(words)}
        return {name: one_hot(torch.tensor(n), len(words[name])).float() for name, n in numbers.items()}

    return critic


def numbered(count):
    return torch.arange(count).float().reshape(-1, 1, 1, 1)


CRITIC = critic_of(("wood", "sphere", "red"), ("wood", "cube", "red"), ("wood", "none", "red"), ("sand", "ring", "red"))


def shares(count, captions):
    return {
        name: float(right.nanmean()) for name, right in judge_images(CRITIC, numbered(4)[-count:], captions).items()
    }


def test_colour_counts_only_where_it_is_asked_and_all_needs_everything():
    assert shares(4, CAPTIONS) == pytest.approx({"texture": 0.75, "shape": 0.75, "colour": 0.5, "all": 0.5})


def test_verdicts_do_not_depend_on_the_batch_size():
    one, four = (judge_images(CRITIC, numbered(4), CAPTIONS, batch_size=size) for size in (1, 4))
    for name in one:
        torch.testing.assert_close(one[name], four[name], equal_nan=True)


def test_bare_textures_alone_have_no_colour_share():
    assert np.isnan(shares(2, CAPTIONS[2:])["colour"])


def test_a_prompt_with_an_unknown_word_is_rejected():
    with pytest.raises(LanternError, match="pink"):
        judge_images(CRITIC, numbered(1), ["a pink sphere on wood"])
