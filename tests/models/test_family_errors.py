"""Folders that a family cannot be loaded from: one clear error each, and nothing of them executed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from support.configs import composed
from support.families import FAMILIES, LENGTH, config

from lantern.errors import CheckpointError, LanternError
from lantern.models.hf.target import HuggingFaceTarget


@pytest.mark.parametrize("family", [FAMILIES["anole"], FAMILIES["janus_pro"]], ids=str)
def test_a_checkpoint_of_another_size_is_one_clear_error(loaded, tmp_path):
    """Catches a lenient load that leaves weights at random."""
    cfg = config(loaded.family, loaded.folder)
    body = cfg.model.geometry.get("text_config", cfg.model.geometry)
    body.num_hidden_layers = 3
    with pytest.raises(CheckpointError, match=r"does not fit this model: missing .*layers\.2\."):
        instantiate_model(cfg)
    body.num_hidden_layers, body.intermediate_size = 2, 64
    with pytest.raises(CheckpointError, match=r"mis-shaped .*\(48, 32\) instead of \(64, 32\)|mis-shaped .*\(32, 48\)"):
        instantiate_model(cfg)


def instantiate_model(cfg: DictConfig) -> HuggingFaceTarget:
    """Without Hydra's wrapping of what constructors raise."""
    try:
        return instantiate(cfg.model)
    except Exception as error:
        raise (error.__cause__ or error) from None


@pytest.mark.parametrize(
    ("model", "size", "multiple", "nearest"), [("lumina_mgpt", 528, 32, 512), ("llamagen_c2i_b", 250, 16, 256)]
)
def test_an_image_size_that_is_no_whole_number_of_codes_is_one_clear_error(model, size, multiple, nearest):
    """Catches one that is rounded down without a word; Lumina's size tokens count 32 pixels. No file is read."""
    cfg = composed("evaluate", f"model={model}", f"model.image_size={size}", "device=meta", "dtype=bfloat16")
    message = rf"model\.image_size={size} is no multiple of {multiple}; give model\.image_size={nearest},"
    with pytest.raises(CheckpointError, match=message):
        instantiate_model(cfg)


@pytest.mark.full
@pytest.mark.parametrize("family", [FAMILIES["emu3"]], ids=str)
def test_a_negative_prompt_is_taken_whole_or_is_one_clear_error(loaded):
    """Catches one that is cut to the room that the prefix leaves."""
    cfg = config(loaded.family, loaded.folder)
    words = ["sand"] * (LENGTH - 6)  # without the begin, the image's begin and "4*4"
    cfg.model.negative = " ".join(words)
    (prefix,) = instantiate_model(cfg).prompts(["wood"])
    assert len(prefix.unconditional) == LENGTH
    cfg.model.negative = " ".join([*words, "sand"])
    message = r"model\.negative takes 33 tokens .* model\.prefix_len=32; give model\.prefix_len=33 or a shorter"
    with pytest.raises(LanternError, match=message):
        instantiate_model(cfg)


class Code:
    """Would run a command if it were unpickled."""

    def __reduce__(self):
        return eval, ("print('executed')",)


@pytest.mark.full
@pytest.mark.parametrize("family", [FAMILIES["anole"]], ids=str)
def test_damaged_folders_are_one_clear_error_each(loaded, tmp_path, capfd):
    """Catches a traceback out of transformers for a truncated download, another family, no tokenizer, or code."""

    def copy(name: str) -> tuple[Path, DictConfig]:
        folder = tmp_path / name
        shutil.copytree(loaded.folder, folder)
        return folder, config(loaded.family, folder)

    folder, cfg = copy("truncated")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"not readable .* copy them again"):
        instantiate_model(cfg)
    folder, cfg = copy("other")
    (folder / "config.json").write_text(json.dumps({"model_type": "llava"}))
    with pytest.raises(CheckpointError, match="holds a llava model where a"):
        instantiate_model(cfg)
    folder, cfg = copy("mute")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match="text tokenizer"):
        instantiate_model(cfg)
    folder, cfg = copy("pickled")
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Code()}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"never executed|not readable"):
        instantiate_model(cfg)
    assert "executed" not in capfd.readouterr().out
