"""Folders that a family cannot be loaded from: one clear error each, and nothing of them executed."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from support import families
from support.configs import composed
from support.families import FAMILIES, LENGTH, Loaded, config
from support.pickled_code import Code
from transformers import AutoConfig, AutoModelForCausalLM, GemmaConfig, GemmaModel

import lantern
from lantern.errors import CheckpointError, LanternError
from lantern.models.hf.prompt_format import PromptIds, fixed
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary


@pytest.mark.parametrize("family", [FAMILIES["anole"], FAMILIES["janus_pro"]], ids=str)
def test_weights_of_another_size_than_their_config_says_are_one_clear_error(loaded, tmp_path):
    """Catches a lenient load that leaves weights at random."""
    folder = tmp_path / "copy"
    shutil.copytree(loaded.folder, folder)
    cfg, body = config(loaded.family, folder), "text_config." if loaded.family.model == "janus_pro" else ""
    edit(folder, f"{body}num_hidden_layers", 3)
    with pytest.raises(CheckpointError, match=r"does not fit this model: missing .*layers\.2\."):
        instantiate_model(cfg)
    edit(folder, f"{body}num_hidden_layers", 2)
    edit(folder, f"{body}intermediate_size", 64)
    with pytest.raises(CheckpointError, match=r"mis-shaped .*\[(48, 32\] instead of \[64, 32|32, 48)\]"):
        instantiate_model(cfg)


def instantiate_model(cfg: DictConfig) -> HuggingFaceTarget:
    """Without Hydra's wrapping of what constructors raise."""
    try:
        return instantiate(cfg.model)
    except Exception as error:
        raise (error.__cause__ or error) from None


def edit(folder: Path, name: str, value: object) -> None:
    """Sets a value in config.json; name: its keys, joined by dots."""
    path = folder / "config.json"
    whole = held = json.loads(path.read_text())
    *outer, last = name.split(".")
    for key in outer:
        held = held.setdefault(key, {})
    held[last] = value
    path.write_text(json.dumps(whole))


EDITS = [
    (FAMILIES["anole"], "rope_parameters.rope_theta", 5e2), (FAMILIES["anole"], "hidden_act", "gelu"),
    (FAMILIES["janus_pro"], "text_config.rms_norm_eps", 1.0), (FAMILIES["liquid"], "rope_parameters.rope_theta", 5e2),
]  # fmt: skip


@pytest.mark.parametrize(("family", "name", "value"), EDITS, ids=str)
def test_a_fine_tune_is_computed_as_its_own_config_says(loaded, name, value, tmp_path):
    """Catches sizes and constants of the yaml in place of the checkpoint's, whose weights fit and decode wrongly."""
    shutil.copytree(loaded.folder, tmp_path / "copy")
    edit(tmp_path / "copy", name, value)
    target = instantiate_model(config(loaded.family, tmp_path / "copy"))
    slow = type(loaded.slow).from_pretrained(tmp_path / "copy").eval()
    codes = torch.randint(24, (target.num_tokens,), generator=torch.Generator().manual_seed(0))
    (prefix,), changed = target.prompts(["a red ring"]), Loaded(loaded.family, loaded.folder, target, slow)
    with torch.inference_mode():
        features = target.teach(codes[None], ["a red ring"])[:, :, target.prefix_len + 2]
        found = target.head(target.guide(features[:, :, None]))[0, 0]
        own, other, before = (
            changed.family.logits(model, ids, codes[:3].tolist())
            for model, ids in ((slow, prefix[0]), (slow, prefix[1]), (loaded.slow, prefix[0]))
        )
    torch.testing.assert_close(found, other + target.cfg_scale * (own - other), rtol=0, atol=1e-5)
    assert (own - before).abs().max() > 1e-3


@pytest.mark.parametrize("family", [FAMILIES["janus_pro"]], ids=str)
def test_a_fine_tune_of_another_size_loads_by_its_folder_alone(loaded):
    """Catches a yaml that is written for one size."""
    settings = {"model.checkpoint": str(loaded.folder), "model.prefix_len": LENGTH}
    model = lantern.load("janus_pro", settings, dtype="float32", device="cpu")
    assert model.target.embed_weight.shape == loaded.target.embed_weight.shape
    assert model.generate(["a red ring"], method="jacobi").tokens.shape == (1, 16)


@pytest.mark.parametrize("family", [FAMILIES["anole"]], ids=str)
def test_a_config_that_describes_no_model_is_one_clear_error(loaded, tmp_path):
    shutil.copytree(loaded.folder, tmp_path / "copy")
    edit(tmp_path / "copy", "hidden_size", "wide")
    with pytest.raises(CheckpointError, match=r"describes no model .*hidden_size"):
        instantiate_model(config(loaded.family, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("model", "size", "multiple", "nearest"), [("lumina_mgpt", 528, 32, 512), ("llamagen_c2i_b", 250, 16, 256)]
)
def test_an_image_size_that_is_no_whole_number_of_codes_is_one_clear_error(model, size, multiple, nearest):
    """Catches one that is rounded down without a word; Lumina's size tokens count 32 pixels. No file is read."""
    cfg = composed("evaluate", f"model={model}", f"model.image_size={size}", "device=meta", "dtype=bfloat16")
    message = rf"model\.image_size={size} is no multiple of {multiple}; give model\.image_size={nearest},"
    with pytest.raises(CheckpointError, match=message):
        instantiate_model(cfg)


@pytest.mark.parametrize("family", [FAMILIES["liquid"]], ids=str)
def test_a_grid_that_is_no_square_is_refused_where_images_are_decoded_as_squares(loaded):
    """Catches an image of scrambled codes, and one whose decoding fails when all codes are drawn."""
    cfg = config(loaded.family, loaded.folder)
    cfg.model.image_size = [4, 16]
    with pytest.raises(LanternError, match="square, not 2 by 8"):
        instantiate_model(cfg)


@pytest.mark.parametrize(
    ("kind", "setting", "said"), [
        ("gemma2", {"sliding_window": 8}, "attends otherwise"), ("gemma2", {"final_logit_softcapping": 3.0}, "logits"),
        ("gpt2", {}, "does not fit"),
    ],
)  # fmt: skip
def test_a_body_of_another_law_is_refused(kind, setting, said, tmp_path):
    """Catches logits without what a model's forward does behind its head, and attention to more than it attends to."""
    families.save_vqgan(tmp_path)
    plain = {"attn_logit_softcapping": None, "final_logit_softcapping": None} if kind == "gemma2" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **families.LIQUID | plain | setting))
    families.save(model, tmp_path, [*families.LIQUID_NAMES, families.LIQUID_UNCONDITIONAL])
    with pytest.raises(LanternError, match=said):
        instantiate_model(config(FAMILIES["liquid"], tmp_path))


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
    message = r"model\.prefix_len=32: .* takes 33 tokens; give model\.prefix_len=33 at least, or a shorter"
    with pytest.raises(LanternError, match=message):
        instantiate_model(cfg)


@pytest.mark.parametrize("family", [FAMILIES["simplear"]], ids=str)
def test_codes_beyond_the_vocabulary_and_a_prefix_without_room_are_one_clear_error(loaded):
    """Catches a slice of fewer codes, and an unconditional prompt that does not fit."""
    for name, value, remedy in (("levels", [4, 3, 3], "its own text"), ("prefix_len", 2, "model.prefix_len=")):
        cfg = config(loaded.family, loaded.folder)
        cfg.model[name] = value
        with pytest.raises(LanternError, match=f"give {remedy}"):
            instantiate_model(cfg)


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
    with pytest.raises(CheckpointError, match=r"no readable weights .* copy them again"):
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
    with pytest.raises(CheckpointError, match="never executed"):
        instantiate_model(cfg)
    assert "executed" not in capfd.readouterr().out


def test_raw_rows_of_an_embedding_that_scales_are_refused():
    """Catches codes that are read without the factor by which Gemma multiplies what it looks up."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8}
    body = GemmaModel(GemmaConfig(vocab_size=9, num_key_value_heads=1, **sizes))
    vocabulary = ImageVocabulary(body.embed_tokens.weight[:4], torch.zeros(4, 8))
    with pytest.raises(LanternError, match="scales"):
        HuggingFaceTarget(body, vocabulary, PromptIds(None, 4, [], [], fixed([0])), Mock(), (2, 2), 1.0)
