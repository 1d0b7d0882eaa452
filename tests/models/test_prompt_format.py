"""Prompts as models read them: the ids that stand in front of an image, the features of a tiny random T5 that is saved
with a decoder and a head as the released one is, and prompts that are too long."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.families import save_t5, save_text_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, T5ForConditionalGeneration

from lantern.errors import CheckpointError, LanternError
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of
from lantern.models.t5 import T5Features, load_t5


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
    assert "cut behind 6 tokens: " in caplog.text


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


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("t5")
    save_t5(folder)
    return folder


@pytest.fixture(scope="module")
def features(t5) -> T5Features:
    return load_t5(str(t5), length=7, dtype="float32", device="cpu")


def test_valid_rows_stand_last_and_are_those_of_the_encoder_alone(t5, features):
    """Catches features shifted too far, visible pads, uninitialised embeddings, and pads that are not zero."""
    prompts = ["a red sphere on wood", "sand"]
    found, visible = features(prompts)
    assert found.shape == (2, 7, 32)
    assert visible.tolist() == [[False] * 2 + [True] * 5, [False] * 6 + [True]]
    slow = T5ForConditionalGeneration.from_pretrained(t5).encoder.eval()
    for row, prompt in enumerate(prompts):
        ids = features.tokenizer(prompt, return_tensors="pt").input_ids
        with torch.inference_mode():
            alone = slow(input_ids=ids).last_hidden_state[0]
        torch.testing.assert_close(found[row, visible[row]], alone, rtol=0, atol=1e-5)
        assert not found[row, ~visible[row]].any()


def test_a_missing_encoder_is_told_by_its_own_setting(tmp_path):
    """Catches a remedy that names the transformer's checkpoint, which would then be lost."""
    for place in ("/nowhere/flan", str(tmp_path)):
        with pytest.raises(CheckpointError, match=r"model\.text_encoder\.checkpoint") as told:
            load_t5(place, device="cpu")
        assert "model.checkpoint" not in str(told.value)


def test_a_caption_that_is_too_long_is_cut_with_a_warning(features, caplog):
    with caplog.at_level(logging.WARNING):
        found, visible = features(["a red sphere on wood on sand on wood"])
    assert visible.all()
    assert found.shape == (1, 7, 32)
    features(["a red sphere on wood on sand on wood"])
    assert caplog.text.count("has 9 tokens; what is behind 7 is cut") == 1  # of a training's every epoch


def test_captions_are_encoded_in_lower_case_with_single_spaces(features):
    assert torch.equal(features(["  A Red\n sphere "])[0], features(["a red sphere"])[0])


def test_the_end_of_a_text_that_a_user_typed_is_text(features):
    """Catches special tokens that are read in a caption."""
    special = features.tokenizer.get_vocab()["<pad>"]
    assert special not in features.tokenizer("sand <pad>", split_special_tokens=True).input_ids
    assert not torch.equal(features(["sand <pad>"])[1], features(["sand"])[1])
