"""The released drafters' layout: the golden miniature computes what the released code computes, decodes, goes on
training, and is exported into ours unchanged."""

import json
import pickle
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file
from support.configs import composed
from support.paths import GOLDEN
from support.pickled_code import Code
from support.recipes import feature_lk
from support.toy import decode
from torch.nn.functional import embedding

from lantern.drafters.eagle.network import FusedEagle
from lantern.drafters.export import write_drafter
from lantern.drafters.loading import load_eagle, load_network, read_drafter
from lantern.drafters.none import NoDrafter
from lantern.engine.cache import additive
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import load_weights, save_weights, weights_hash
from lantern.models.conditioners import WordFeatures
from lantern.models.llamagen.fused import rotary_table
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import Transformer
from lantern.sampling import Sampling
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.variants import loaded_network
from lantern.trees.static import chain

DRAFTER = GOLDEN / "lantern_drafter_tiny"


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "lantern_llamagen_tiny_expected.safetensors")


def target_of(dtype: torch.dtype = torch.float32, grid: tuple = (16, 16), prefix: int = 120) -> LlamaGenTarget:
    """A target of the golden drafter's sizes with weights of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformer = Transformer(96, 1, 3, 160, grid, caption_dim=48, prefix_len=prefix, multiple_of=64)
        for weight in transformer.parameters():
            weight.data.mul_(4 if weight.dim() == 2 else 1)
    images = type("Images", (), {"codebook": torch.randn(160, 4), "decode": staticmethod(lambda tokens: tokens)})
    return LlamaGenTarget(transformer.to(dtype), WordFeatures(list("abc"), 48, prefix), images, 2.0, "golden-sized")


class OnePass:
    def update(self, layer, key, value):
        return key, value


@torch.inference_mode()
def test_the_golden_drafter_computes_what_the_released_code_computes(expected):
    """As it is trained and as decoding runs it. Catches fc's order, a norm too many, half-split rotation, positions off
    by one, masked pads, and the target's embedding in the place of the drafter's own."""
    target = target_of()
    network = load_network(DRAFTER, target)
    ids, hidden = expected["drafter_in_ids"], expected["drafter_in_hidden"]
    length, embeddings = ids.shape[1], embedding(ids, network.embedding(target.embed_weight))
    outputs = network(embeddings, hidden, target.rotation[None, 1 : length + 1], None)
    mask = additive(torch.ones(1, length, length, dtype=torch.bool).tril(), torch.float32)
    rotary = rotary_table(target.rotation, torch.float32)[None, 1 : length + 1]
    fused = FusedEagle(network, target.embed_weight)(ids, hidden[:, None], rotary, mask, OnePass())[:, 0]
    for found in (outputs, fused):
        torch.testing.assert_close(found, expected["drafter_out_hidden"], rtol=0, atol=1e-5)


def test_a_released_drafter_decodes_and_leaves_the_tokens_of_plain_decoding():
    target, sampling = target_of(torch.float64, (4, 4)), Sampling()
    drafter = load_eagle(DRAFTER, target, chain(3), sampling)
    drafted, plain = (decode(target, each, sampling, 2, prompts=["a b", "c"]) for each in (drafter, NoDrafter()))
    assert torch.equal(drafted.tokens, plain.tokens)


def task_on(target: LlamaGenTarget, start_from: object) -> DrafterTask:
    return DrafterTask(
        target, Sampling(), feature_lk(depth=1, feature_noise=0.0), lr=1e-3, muon_lr=1e-3, weight_decay=0.0,
        validation_depth=1, seed=0, start_from=str(start_from),
    )  # fmt: skip


def test_fine_tuning_starts_from_the_released_weights_and_reads_its_own_embedding(expected, tmp_path):
    """Catches a start from scratch, a linear start over trained weights, and the target's embedding in lessons."""
    target = target_of(grid=(4, 4))
    task = task_on(target, DRAFTER)
    tokens = torch.arange(16)[None]
    pairs = task._pairs({"tokens": tokens, "caption": ["a"]})
    own = load_weights(DRAFTER)[0]["embed_tokens.weight"]
    assert torch.equal(pairs.embeddings[0, 119:], own[:15])
    assert "network.embed_weight" not in dict(task.named_parameters())  # frozen, as EAGLE's embedding is
    task.log = lambda *_, **__: None
    task._trainer = type("Trainer", (), {"global_step": 0, "global_rank": 0, "world_size": 1})
    loss = task.training_step({"tokens": tokens, "caption": ["a"]}, 0)
    loss.backward()
    assert torch.equal(task.network.fc.weight, load_weights(DRAFTER)[0]["fc.weight"])
    task.export(tmp_path)
    again = load_network(tmp_path, target)
    assert torch.equal(again.embed_weight, own)


def test_an_export_of_a_released_drafter_is_one_of_ours(tmp_path):
    """Catches weights that change on the way, and export.py's own model= that does not load."""
    cfg, target = composed("export", f"drafter.checkpoint={DRAFTER}", f"to={tmp_path}"), target_of()
    write_drafter(cfg.drafter.checkpoint, target, cfg.to)
    first, again = (load_network(folder, target).state_dict() for folder in (DRAFTER, tmp_path))
    assert first.keys() == again.keys()
    assert all(torch.equal(value, again[name]) for name, value in first.items())


def test_an_export_replaces_an_earlier_one_and_no_other_weights(tmp_path):
    """Catches a target's weights, or a drafter of the other layout, overwritten or left without a config.json."""
    place, target = tmp_path / "to", target_of()
    first = write_drafter(str(DRAFTER), target, str(place)).read_bytes()
    assert write_drafter(str(DRAFTER), target, str(place)).read_bytes() == first
    with pytest.raises(LanternError, match=r"to=.* holds pytorch_model\.bin, which is no drafter; give another folder"):
        write_drafter(str(DRAFTER), target, str(copied(tmp_path / "theirs")))
    save_weights(tmp_path / "target", {"norm.weight": torch.ones(2)}, {"dim": 2})
    before = {file.name: file.read_bytes() for file in (tmp_path / "target").iterdir()}
    with pytest.raises(LanternError, match=r"holds model\.safetensors, which is no drafter"):
        write_drafter(str(DRAFTER), target, str(tmp_path / "target"))
    assert {file.name: file.read_bytes() for file in (tmp_path / "target").iterdir()} == before


def test_a_config_without_an_epsilon_has_that_of_the_released_code(tmp_path):
    assert load_network(copied(tmp_path, rms_norm_eps=None), target_of()).ffn_norm.eps == 1e-6


def copied(folder: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "pytorch_model.bin").write_bytes((DRAFTER / "pytorch_model.bin").read_bytes())
    config = json.loads((DRAFTER / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 128}, "dim=128, this one has 96"),
        ({"vocab_size": 99}, "vocab_size=99, this one has 160"),
        ({"hidden_size": None}, r"config\.json describes no drafter \('hidden_size'\)"),
        ({"intermediate_size": 200}, "mis-shaped"),
    ],
)
def test_a_drafter_of_another_size_is_rejected_by_name(tmp_path, changes, message):
    with pytest.raises(CheckpointError, match=message):
        load_network(copied(tmp_path, **changes), target_of())


def test_a_released_file_that_holds_code_is_rejected_unread(tmp_path, capfd):
    folder = copied(tmp_path)
    for save in (torch.save, pickle.dump):
        with (folder / "pytorch_model.bin").open("wb") as file:
            save({"fc.weight": Code()}, file)
        with pytest.raises(CheckpointError, match="never executed"):
            read_drafter(folder)
    assert "executed" not in capfd.readouterr().out


def test_an_unknown_layer_in_a_released_file_is_named(tmp_path):
    folder = copied(tmp_path)
    state = load_weights(folder)[0] | {"layers.1.mlp.up_proj.weight": torch.zeros(1)}
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"unexpected layers\.1"):
        load_network(folder, target_of())


def test_a_hub_id_brings_a_drafters_files_and_half_of_them_are_fetched_again(tmp_path, monkeypatch):
    """Catches an id that is taken for a folder, weights that are not asked for, and a hash of nothing."""
    asked = []
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")

    def snapshot(repository: str, allow_patterns: list[str], local_files_only: bool = False, **_: object) -> str:
        asked.append((repository, local_files_only))
        assert {"config.json", "model.safetensors", "pytorch_model.bin"} == set(allow_patterns)
        return str(tmp_path / "half" if local_files_only else DRAFTER)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    drafter = load_eagle("owner/drafter", target_of(), chain(2), Sampling())
    assert asked == [("owner/drafter", True), ("owner/drafter", False)]
    assert drafter.weights_hash == weights_hash(DRAFTER)
    written = write_drafter("owner/drafter", target_of(), str(tmp_path / "ours"))
    assert load_weights(written.parent)[0].keys() == read_drafter(DRAFTER)[0].keys()
    assert loaded_network("owner/drafter", target_of()).fc.weight.equal(drafter.network.fc.weight)


def test_a_drafter_that_cannot_be_had_is_one_sentence(monkeypatch):
    def reject(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", reject)
    with pytest.raises(CheckpointError, match=r"is not on .*owner/drafter .*drafter\.checkpoint=<its"):
        load_eagle("owner/drafter", target_of(), chain(2), Sampling())
    with pytest.raises(CheckpointError, match=r"nothing at drafter\.checkpoint=/no/such; .*train\.py"):
        load_eagle("/no/such", target_of(), chain(2), Sampling())
    with pytest.raises(CheckpointError, match=r"nothing at task\.start_from=/no/such"):
        loaded_network("/no/such", target_of())
