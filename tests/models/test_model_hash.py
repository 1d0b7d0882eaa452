"""The hash of a target's weights: of what is in memory, from wherever it was read."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hydra.utils import instantiate
from support.families import FAMILIES, LENGTH, SIDE, Loaded, config
from torch import nn

import lantern
from lantern.identity import SAMPLED, sampled_hash
from lantern.models.hf.target import HuggingFaceTarget

HUB_ID = "somebody/a-model"
HEADS = {"janus_pro": "model.generation_head", "glm_image": "lm_head"}


def wrapped_hash(loaded: Loaded, model: nn.Module) -> str:
    given = [f"model.prefix_len={LENGTH}", "dtype=float32", "device=cpu", "sampling.cfg_scale=2"]
    if loaded.family.model == "glm_image":
        given += [f"model.image_size={32 * SIDE}", "model.preview_side=2"]
    return lantern.wrap(model, loaded.target.prompts.tokenizer, settings=given).target.weights_hash


@pytest.mark.parametrize("family", [FAMILIES[name] for name in HEADS], ids=str)
def test_a_model_has_one_hash_from_its_folder_by_a_hub_id_and_wrapped(loaded):
    """Catches a drafter that was trained through wrap and is refused by load, or from another place."""
    model = deepcopy(loaded.slow)
    for place in (str(loaded.folder), HUB_ID):
        model.name_or_path = model.config._name_or_path = place
        assert wrapped_hash(loaded, model) == loaded.target.weights_hash
    half = instantiate(config(loaded.family, loaded.folder, "dtype=bfloat16").model)
    assert half.weights_hash == loaded.target.weights_hash


@pytest.mark.parametrize("family", [FAMILIES[name] for name in HEADS], ids=str)
def test_a_model_that_was_changed_in_memory_has_another_hash(loaded):
    """Catches the hash of the files that its weights once came from."""
    model = deepcopy(loaded.slow)
    model.name_or_path = str(loaded.folder)
    head = model.get_submodule(HEADS[loaded.family.model])
    with torch.no_grad():
        next(head.parameters()).mul_(2)
    assert wrapped_hash(loaded, model) != loaded.target.weights_hash


@pytest.mark.parametrize("family", [FAMILIES["emu3"]], ids=str)
def test_a_target_of_ones_own_is_named_by_its_weights(loaded):
    """Catches rows and drafters of two targets under one name, or under none."""
    target = loaded.target

    def named(**changed):
        parts = replace(target.vocabulary, **changed)
        return HuggingFaceTarget(target.transformer, parts, target.prompts, target.tokenizer, (4, 4), 1.0).weights_hash

    assert named() == named() != ""
    assert named(head=target.vocabulary.head + 1) != named()


def test_of_large_weights_a_sample_of_all_rows_and_columns_is_read():
    """Catches a stride along one column, and a whole model that is read."""
    weight = torch.zeros(512, 1024)
    known = sampled_hash({"w": weight})
    for row in range(0, 512, 8):
        weight[row] = 1
        assert sampled_hash({"w": weight}) != known
        weight[row] = 0
    weight[:, 5] = 1
    assert sampled_hash({"w": weight}) != known
    assert sampled_hash({"w": torch.zeros(1024, 512)}) != known
    assert weight.numel() > 64 * SAMPLED
