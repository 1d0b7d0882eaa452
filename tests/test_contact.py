"""python -m lantern.contact on tiny checkpoints: what is there and what is expected."""

import re
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.commands import module_refusal, run_as_module
from support.families import FAMILIES, LENGTH, SIDE
from support.paths import GOLDEN


def leaves(settings: dict, name: str) -> list[str]:
    """As overrides of a command."""
    found = []
    for key, value in settings.items():
        found += leaves(value, f"{name}.{key}") if isinstance(value, dict) else [f"++{name}.{key}={value}"]
    return [one.replace(" ", "") for one in found]


GLM = "model=glm_image", f"model.image_size={32 * SIDE}", "model.preview_side=2", f"model.prefix_len={LENGTH}"


COMMAND = "lantern.contact", "device=cpu", "dtype=float32"
FITS = re.compile(r"(\S+): (\d+) weights are there, \2 weights are expected")


@pytest.fixture
def contact(tmp_path, monkeypatch, capsys) -> Callable[..., list[str]]:
    """The lines that the command prints, without the settings, and its error if it ends with one."""
    monkeypatch.chdir(tmp_path)

    def contact(*settings: str) -> list[str]:
        ended = ""
        try:
            run_as_module(monkeypatch, *COMMAND, *settings)
        except SystemExit as error:
            ended = str(error.code)
        header, *lines = capsys.readouterr().out.splitlines()
        assert header.split().count(next(iter(header.split()))) == 1
        return [*lines, *filter(None, [ended])]

    return contact


def test_weights_that_fit_are_all_there(contact, tmp_path):
    FAMILIES["glm_image"].make(tmp_path / "model")
    (said,) = contact(*GLM, f"model.checkpoint={tmp_path / 'model'}")
    assert FITS.fullmatch(said)


@pytest.mark.full
def test_weights_of_a_model_of_its_own_layout_are_all_that_is_expected(contact, tmp_path):
    """Catches names of parts that are not loaded, and a body that its checkpoint names otherwise."""
    family, folder = FAMILIES["lumina_mgpt2"], tmp_path / "model"
    folder.mkdir()
    family.make(folder)
    changes = {**family.changes, "image_size": 2 * SIDE, "prefix_len": LENGTH, "checkpoint": folder}
    changes["tokenizer"] = {"checkpoint": folder, "file": "vqgan.ckpt", **changes["tokenizer"]}
    assert all(map(FITS.fullmatch, contact("model=lumina_mgpt2", *leaves(changes, "model"))))


def test_names_and_shapes_that_differ_are_told_without_loading_the_weights(contact, tmp_path):
    FAMILIES["glm_image"].make(tmp_path / "model")
    path = tmp_path / "model" / "vision_language_encoder" / "model.safetensors"
    state = load_file(path)
    state["lm_head.weight"], state["another"] = state["lm_head.weight"][:5].clone(), torch.zeros(2)
    del state["model.language_model.norm.weight"]
    save_file(state, path)
    assert contact(*GLM, f"model.checkpoint={tmp_path / 'model'}")[1:] == [
        "  1 missing: model.language_model.norm.weight", "  1 unexpected: another",
        "  1 mis-shaped: lm_head.weight [5, 32] instead of [26, 32]",
    ]  # fmt: skip


def test_a_file_of_torch_and_a_hub_that_is_out_of_reach(contact):
    sizes = ("model.dim=96", "model.num_layers=3", "model.num_heads=3", "model.num_classes=7", "+model.multiple_of=64")
    said = contact(
        "model=llamagen_c2i_b", f"model.checkpoint={GOLDEN}", "model.file=llamagen_c2i_tiny.pt", *sizes,
        "model.image_size=16", "model.tokenizer.checkpoint=nobody/nothing@v2",
    )  # fmt: skip
    assert any(re.match(rf"{GOLDEN}: \d\d+ weights are there", line) for line in said)
    assert any(line.startswith("nobody/nothing@v2: not looked at (") for line in said)
    assert said[-1].startswith("error: nobody/nothing@v2 cannot be read")


def test_a_path_where_nothing_is_is_no_repository_of_the_hub_and_a_damaged_file_is_an_error(contact, tmp_path):
    """Catches the Hub's sentence about repository ids, and exit status 0 where nothing was compared."""
    (tmp_path / "bad.pt").write_bytes(b"junk")
    wrong = ["model.checkpoint=weights/nope.pt", f"model.tokenizer.checkpoint={tmp_path}/bad.pt"]
    said = contact("model=llamagen_c2i_b", *wrong)
    assert {*said[-1].removeprefix("error: ").partition(" cannot")[0].split(", ")} == {
        "weights/nope.pt",
        f"{tmp_path}/bad.pt",
    }
    assert [line for line in said if line.startswith("weights/nope.pt: not looked at (no weights there)")]


def test_a_setting_that_means_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert module_refusal(monkeypatch, *COMMAND, "tree=static")
    assert "model=llamagen has no released weights; give" in module_refusal(monkeypatch, *COMMAND)


def test_a_folder_without_a_model_is_one_sentence_and_one_without_weights_is_told(contact, tmp_path, monkeypatch):
    """Catches an endless loop over two errors that name each other as their cause."""
    (tmp_path / "empty").mkdir()
    said = module_refusal(monkeypatch, *COMMAND, "model=janus_pro", f"model.checkpoint={tmp_path / 'empty'}")
    assert "config.json describes no model" in said
    FAMILIES["glm_image"].make(tmp_path / "model")
    (tmp_path / "model" / "vision_language_encoder" / "model.safetensors").unlink()
    said, error = contact(*GLM, f"model.checkpoint={tmp_path / 'model'}")
    assert "not looked at (no weights there)" in said
    assert "cannot be read" in error
