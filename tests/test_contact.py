"""python -m lantern.contact on tiny checkpoints: what is there and what is expected, and a window beside it."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.families import FAMILIES, LENGTH, PIXELS, SIDE
from support.paths import ROOT

GOLDEN = ROOT / "tests" / "golden"


def leaves(settings: dict, name: str) -> list[str]:
    """As overrides of a command."""
    found = []
    for key, value in settings.items():
        found += leaves(value, f"{name}.{key}") if isinstance(value, dict) else [f"++{name}.{key}={value}"]
    return [one.replace(" ", "") for one in found]


GLM = "model=glm_image", f"model.image_size={32 * SIDE}", "model.preview_side=2", f"model.prefix_len={LENGTH}"


def run(folder, *settings: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lantern.contact", "device=cpu", "dtype=float32", "to=found.json", *settings]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def contact(folder, *settings: str) -> tuple[str, dict]:
    done = run(folder, *settings)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "found.json").read_text())


def test_weights_that_fit_are_decoded_plainly_and_by_a_window(tmp_path):
    FAMILIES["glm_image"].make(tmp_path / "model")
    said, found = contact(tmp_path, *GLM, f"model.checkpoint={tmp_path / 'model'}")
    (weights,) = found["weights"]
    assert weights["differences"] == {}
    assert found["decoding"]["equal_tokens"] == len(found["decoding"]["tokens"]) == SIDE**2 + 4
    assert "a window draws 20 of 20 tokens of plain decoding in float32" in said


@pytest.mark.full
@pytest.mark.parametrize("name", ["lumina_mgpt2", "emu35", "x_omni"])
def test_weights_of_a_model_of_its_own_layout_are_all_that_is_expected(name, tmp_path):
    """Catches names of parts that are not loaded, and a body that its checkpoint names otherwise."""
    family, folder = FAMILIES[name], tmp_path / "model"
    folder.mkdir()
    family.make(folder)
    changes = {**family.changes, "image_size": PIXELS.get(name, 2) * SIDE, "prefix_len": LENGTH, "checkpoint": folder}
    if "tokenizer" in changes:
        changes["tokenizer"] = {"checkpoint": folder, "file": "vqgan.ckpt", **changes["tokenizer"]}
    _, found = contact(tmp_path, f"model={name}", *leaves(changes, "model"))
    assert all(weights["read"] and not weights["differences"] for weights in found["weights"])
    assert found["decoding"]["equal_tokens"] == SIDE**2


def test_names_and_shapes_that_differ_are_told_without_loading_the_weights(tmp_path):
    FAMILIES["glm_image"].make(tmp_path / "model")
    path = tmp_path / "model" / "vision_language_encoder" / "model.safetensors"
    state = load_file(path)
    state["lm_head.weight"], state["another"] = state["lm_head.weight"][:5].clone(), torch.zeros(2)
    del state["model.language_model.norm.weight"]
    save_file(state, path)
    said, found = contact(tmp_path, *GLM, f"model.checkpoint={tmp_path / 'model'}")
    assert found["weights"][0]["differences"] == {
        "missing": ["model.language_model.norm.weight"], "in excess": ["another"],
        "of another shape": ["lm_head.weight [5, 32] instead of [26, 32]"],
    }  # fmt: skip
    assert "decoding" not in found
    assert "1 missing: model.language_model.norm.weight" in said


def test_a_file_of_torch_and_a_hub_that_is_out_of_reach(tmp_path):
    sizes = ("model.dim=96", "model.num_layers=3", "model.num_heads=3", "model.num_classes=7", "+model.multiple_of=64")
    _, found = contact(
        tmp_path, "model=llamagen_c2i_b", f"model.checkpoint={GOLDEN}", "model.file=llamagen_c2i_tiny.pt", *sizes,
        "model.image_size=16", "model.tokenizer.checkpoint=nobody/nothing@v2",
    )  # fmt: skip
    by_source = {weights["source"]: weights for weights in found["weights"]}
    assert by_source[str(GOLDEN)]["read"] > 20
    assert by_source["nobody/nothing@v2"]["problem"]


@pytest.mark.parametrize("setting", ["decode=maybe", "tree=static"])
def test_a_setting_that_means_nothing_is_refused(setting, tmp_path):
    done = run(tmp_path, setting)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_a_folder_without_a_model_is_one_sentence_and_one_without_weights_is_told(tmp_path):
    """Catches an endless loop over two errors that name each other as their cause."""
    (tmp_path / "empty").mkdir()
    done = run(tmp_path, "model=janus_pro", f"model.checkpoint={tmp_path / 'empty'}")
    assert "config.json describes no model" in done.stderr
    assert "Traceback" not in done.stderr
    FAMILIES["glm_image"].make(tmp_path / "model")
    (tmp_path / "model" / "vision_language_encoder" / "model.safetensors").unlink()
    said, found = contact(tmp_path, *GLM, f"model.checkpoint={tmp_path / 'model'}")
    assert "not looked at (no weights there)" in said
    assert "decoding" not in found
