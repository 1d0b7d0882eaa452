"""Captions through a tiny random T5, saved with a decoder and a head as the released one is."""

import logging
from pathlib import Path

import pytest
import torch
from support.families import save_t5
from transformers import T5ForConditionalGeneration

from lantern.errors import CheckpointError
from lantern.models.t5 import T5Features, load_t5

PROMPTS = ["a red sphere on wood", "sand"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("t5")
    save_t5(folder)
    return folder


@pytest.fixture(scope="module")
def features(folder) -> T5Features:
    return load_t5(str(folder), length=7, dtype="float32", device="cpu")


def test_valid_rows_stand_last_and_are_those_of_the_encoder_alone(folder, features):
    """Catches features shifted too far, visible pads, uninitialised embeddings, and pads that are not zero."""
    found, visible = features(PROMPTS)
    assert found.shape == (2, 7, 32)
    assert visible.tolist() == [[False] * 2 + [True] * 5, [False] * 6 + [True]]
    slow = T5ForConditionalGeneration.from_pretrained(folder).encoder.eval()
    for row, prompt in enumerate(PROMPTS):
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
