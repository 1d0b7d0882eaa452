"""The Python interface of the README, on the shipped weights."""

import pytest
import torch

import lantern
from lantern.errors import LanternError
from lantern.trees.static import StaticTree

PROMPTS = ["a red sphere on wood", "wood"]


@pytest.fixture(scope="module")
def model():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"])


@pytest.mark.full
def test_generate_returns_images_tokens_and_statistics(model):
    result = model.generate(PROMPTS, tree="chain", acceptance="lantern_pp", settings=["acceptance.lam=3"])
    assert result.images.shape == (2, 3, 128, 128)
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    assert result.tokens.shape == (2, 256)
    assert result.statistics.tokens_per_step > 1


@pytest.mark.full
def test_a_lossless_tree_gives_the_images_of_plain_decoding(model):
    plain = model.generate(PROMPTS, drafter="none", seed=5)
    drafted = model.generate(PROMPTS, tree=StaticTree([[0], [1], [0, 0]]), acceptance="exact", seed=5)
    assert torch.equal(plain.tokens, drafted.tokens)


@pytest.mark.full
def test_a_repeated_prompt_gives_another_image(model):
    tokens = model.generate(["wood", "wood"], drafter="none").tokens
    assert not torch.equal(tokens[0], tokens[1])


@pytest.mark.full
@pytest.mark.parametrize("prompts", ["wood", ["a tiger on wood"], [""], []])
def test_prompts_that_cannot_be_drawn_are_refused_in_one_sentence(model, prompts):
    with pytest.raises(LanternError):
        model.generate(prompts)
