"""Prompt ids: what stands in front of an image, and prompts that are too long."""

import logging
from types import SimpleNamespace

import pytest
from support.families import save_text_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from lantern.errors import CheckpointError, LanternError
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("text")
    save_text_tokenizer(folder, ["<image>"])
    return AutoTokenizer.from_pretrained(folder)


def test_a_prompt_is_encoded_in_the_models_format(tokenizer):
    prompts = PromptIds(tokenizer, 12, [70], [80, 81], fixed([80, 81]), "an image of {}")
    (prefix,) = prompts(["a red sphere"])
    assert prefix.conditional == [70, *tokenizer("an image of a red sphere").input_ids, 80, 81]
    assert prefix.unconditional == [80, 81]


def test_the_last_words_of_a_long_prompt_are_cut_and_never_what_follows_them(tokenizer, caplog):
    """Catches a cut through the template's end or the image's begin."""
    prompts = PromptIds(tokenizer, 8, [70], [80], fixed([80]), "an {} of")
    with caplog.at_level(logging.WARNING):
        (prefix,) = prompts(["red blue sphere ring on wood sand"])
    assert prefix.conditional == [70, *tokenizer("an red blue sphere ring of").input_ids, 80]
    assert "takes more than 6 tokens and was cut to 'red blue sphere ring'" in caplog.text


def test_a_long_prompt_without_spaces_is_cut_by_letters():
    """As of Chinese. Catches one that is cut to nothing."""

    def letters(text: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[ord(letter) for letter in text])

    letters.added_tokens_decoder = {}
    (prefix,) = PromptIds(letters, 8, [70], [80], fixed([80]))(["一只红色的猫在木头上"])
    assert prefix.conditional == [70, *map(ord, "一只红色的猫"), 80]


def test_special_tokens_that_a_user_typed_are_text(tokenizer):
    """Catches an image token in the place of its name; the template's own is one."""
    image = tokenizer.get_vocab()["<image>"]
    prompts = PromptIds(tokenizer, 20, [70], [80], fixed([80]), "<image>an image of {} on <image>")
    plain, typed = (prefix.conditional for prefix in prompts(["a red ball", "a red <image> ball"]))
    assert plain == [70, *tokenizer("<image>an image of a red ball on <image>").input_ids, 80]
    assert typed.count(image) == 2
    words = tokenizer("a red <image> ball", split_special_tokens=True).input_ids
    assert image not in words
    assert typed == [70, image, *tokenizer("an image of").input_ids, *words, *tokenizer("on").input_ids, image, 80]
    (alone,) = PromptIds(tokenizer, 20, [], [80], fixed([80]))(["<image>"])
    assert image not in alone.conditional


def test_a_prefix_without_room_for_any_word_is_one_clear_error(tokenizer):
    with pytest.raises(LanternError, match=r"larger model\.prefix_len"):
        PromptIds(tokenizer, 3, [70], [80], fixed([80]), "an image of {}")(["sand"])


def test_a_token_that_the_tokenizer_does_not_know_is_one_clear_error(tokenizer):
    assert id_of(tokenizer, "<image>") == tokenizer.get_vocab()["<image>"]
    with pytest.raises(CheckpointError, match="has no token '<boi>'"):
        id_of(tokenizer, "<boi>")
