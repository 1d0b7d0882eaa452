"""Every bad weights file is one sentence that names the file; good ones come back as they were."""

import json
import logging
import pickle

import pytest
import torch
from support.pickled_code import Code
from support.tiny_weights import write_tiny_weights

from lantern.drafters.loading import eagle_layer
from lantern.errors import CheckpointError
from lantern.models import checkpoints
from lantern.models.llamagen.weights_folder import load_target, load_tokenizer
from lantern.scenes.critic import load_critic

STATE = {"weight": torch.arange(6.0).view(2, 3), "bias": torch.zeros(2)}


def test_saved_weights_come_back_with_their_config(tmp_path):
    path = checkpoints.save_weights(tmp_path / "new", STATE, {"width": 3})
    state, config = checkpoints.load_weights(tmp_path / "new")
    assert config == {"width": 3}
    assert all(torch.equal(state[name], value) for name, value in STATE.items())
    assert sorted(file.name for file in path.parent.iterdir()) == ["config.json", "model.safetensors"]
    assert checkpoints.weights_hash(path) == checkpoints.weights_hash(tmp_path / "new")
    other = checkpoints.save_weights(tmp_path / "other", STATE | {"bias": torch.ones(2)}, {"width": 3})
    assert checkpoints.weights_hash(other) != checkpoints.weights_hash(path)


def test_all_weights_that_settings_name_are_hashed(tmp_path, monkeypatch):
    """Catches a run that counts as finished after its image decoder or a judge has been trained again."""
    monkeypatch.setenv("HOME", str(tmp_path))
    hashes = [checkpoints.weights_hash(checkpoints.save_weights(tmp_path / name, {"w": torch.full((1,), value)}, {}))
              for name, value in (("a", 1.0), ("b", 2.0))]  # fmt: skip
    settings = {"model": {"folder": "~/a", "size": 3}, "metrics": {"x": {"judges": [str(tmp_path / "b"), "a"]}}}
    expected = {"model.folder": hashes[0], "metrics.x.judges.0": hashes[1]}
    assert checkpoints.local_hashes(settings) == expected
    torch.save(STATE, tmp_path / "a" / "vq.pt")  # as releases keep them: several files in a folder, or one alone
    torch.save({"w": STATE["bias"]}, tmp_path / "judge.pth")
    settings["model"]["tokenizer"] = {"checkpoint": "~/a", "file": "vq.pt", "kind": {"folder": "~/a"}}
    settings["metrics"]["judge"] = {"weights": str(tmp_path / "judge.pth"), "file": "none.pt"}
    expected |= {"model.tokenizer.checkpoint": checkpoints.weights_hash(tmp_path / "a" / "vq.pt")}
    expected |= {"model.tokenizer.kind.folder": hashes[0]}
    expected |= {"metrics.judge.weights": checkpoints.weights_hash(tmp_path / "judge.pth")}
    assert checkpoints.local_hashes(settings) == expected


def test_of_weights_and_their_averages_one_is_taken_and_said(tmp_path, caplog):
    """Catches raw weights that are read in place of the averaged ones without a word."""
    raw, averaged = ({"w": torch.full((2,), value)} for value in (1.0, 2.0))
    torch.save({"model": raw, "ema": averaged, "steps": 3}, tmp_path / "vq.pt")
    with caplog.at_level(logging.WARNING):
        assert torch.equal(checkpoints.read_weights(tmp_path / "vq.pt")["w"], averaged["w"])
    assert "holds ema and model; ema is read" in caplog.text
    assert torch.equal(checkpoints.read_weights(tmp_path / "vq.pt", "model")["w"], raw["w"])
    with pytest.raises(CheckpointError, match="holds ema, model and no emma"):
        checkpoints.read_weights(tmp_path / "vq.pt", "emma")
    torch.save({"model": raw, "ema": None}, tmp_path / "alone.pt")
    assert torch.equal(checkpoints.read_weights(tmp_path / "alone.pt")["w"], raw["w"])


def corrupt(folder, name: str, content: bytes):
    (folder / name).write_bytes(content)
    return folder / name


def cut_short(folder):
    torch.save(STATE, folder / "whole.pt")
    return corrupt(folder, "cut.pt", (folder / "whole.pt").read_bytes()[:600])


def archived_code(folder):
    torch.save({"model": Code()}, folder / "code.pt")
    return folder / "code.pt"


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: corrupt(folder, "b.safetensors", b"no tensors here"),
        lambda folder: corrupt(folder, "b.pt", b"no tensors here"),
        lambda folder: corrupt(folder, "c.pt", pickle.dumps({"model": Code()})),
        archived_code,
        cut_short,
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(tmp_path, capfd, make):
    path = make(tmp_path)
    with pytest.raises(CheckpointError, match="holds no readable weights; code in it is never executed") as error:
        checkpoints.read_weights(path)
    assert str(path) in str(error.value)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path} is no file"):
        checkpoints.read_weights(path)
    assert "\n" not in str(error.value)
    assert "executed" not in capfd.readouterr().out


def test_a_weights_folder_without_config_is_one_clear_error(tmp_path):
    checkpoints.save_weights(tmp_path, STATE, {})
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json is no readable config"):
        checkpoints.load_weights(tmp_path)


PARTS = "target", "tokenizer", "drafter", "critic"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


def load(part: str, folder, weights):
    if part == "target":
        return load_target(folder, weights / "tokenizer", 2.0, "float32", "cpu")
    if part == "drafter":
        return eagle_layer(folder, load("target", weights / "target", weights))
    return {"tokenizer": load_tokenizer, "critic": load_critic}[part](folder)


@pytest.mark.parametrize("part", PARTS)
def test_weights_that_are_not_finite_are_refused_by_name(part, weights, tmp_path):
    """Catches a diverged training that is measured as if it were a model, and a part without the check."""
    state, config = checkpoints.load_weights(weights / part)
    name = sorted(key for key, tensor in state.items() if tensor.is_floating_point())[-1]
    for value in (float("nan"), -float("inf")):
        state[name].view(-1)[-1] = value
        checkpoints.save_weights(tmp_path, state, config)
        with pytest.raises(CheckpointError, match=f"{tmp_path} holds NaN or infinite values in {name};"):
            load(part, tmp_path, weights)


@pytest.mark.parametrize(("part", "place", "value"), [
    ("target", "architecture.dim", "x"), ("target", "architecture.num_heads", 3), ("target", "architecture.grid", [16]),
    ("target", "architecture.vocab_size", 10**15), ("target", "word_seed", None), ("tokenizer", "surprise", 1),
    ("tokenizer", "groups", 3), ("drafter", "num_heads", 0),
])  # fmt: skip
def test_sizes_of_no_such_model_are_one_sentence(part, place, value, weights, tmp_path):
    """Catches a traceback of the layer that meets the value first. None: the key is left out."""
    (tmp_path / "model.safetensors").symlink_to(weights / part / "model.safetensors")
    config = json.loads((weights / part / "config.json").read_text())
    *outer, last = place.split(".")
    inner = config[outer[0]] if outer else config
    inner.pop(last, None)
    if value is not None:
        inner[last] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"does not describe a|does not fit this model") as caught:
        load(part, tmp_path, weights)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[", "[1]", "\udcff"])
def test_a_config_that_no_parser_takes_is_one_sentence(content, tmp_path):
    checkpoints.save_weights(tmp_path, STATE, {})
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match="copy it again"):
        checkpoints.load_weights(tmp_path)


def test_weights_that_a_cast_makes_infinite_are_refused(weights, tmp_path):
    """Catches a drafter that loads, drafts nothing and says nothing: its float64 values lie beyond float32."""
    state, config = checkpoints.load_weights(weights / "drafter")
    checkpoints.save_weights(
        tmp_path, state | {"fc.weight": torch.full_like(state["fc.weight"], 1e300, dtype=torch.float64)}, config
    )
    with pytest.raises(CheckpointError, match=r"infinite values in fc\.weight"):
        load("drafter", tmp_path, weights)
