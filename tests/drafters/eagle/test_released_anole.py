"""LANTERN's drafter for Anole, made tiny in its own layout: a layer of Chameleon behind fc, and an embedding of the
whole vocabulary. The slow twin is transformers' own layer over the whole sequence."""

import json
from pathlib import Path

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
import pytest
import torch
from hydra.utils import instantiate
from support.families import CHAMELEON, CODES, FAMILIES, PROMPTS, Loaded, config, pipeline_of
from torch import Tensor, nn
from transformers import ChameleonConfig
from transformers.models.chameleon.modeling_chameleon import ChameleonDecoderLayer, ChameleonRotaryEmbedding

from lantern.drafters.eagle.network import FusedEagle
from lantern.drafters.eagle.released import FIRST_CODE
from lantern.drafters.export import write_drafter
from lantern.drafters.loading import load_network
from lantern.engine.cache import additive
from lantern.errors import CheckpointError
from lantern.models.checkpoints import load_weights
from lantern.models.hf.target import NoCache

SIZES = CHAMELEON | {"num_key_value_heads": 4, "num_hidden_layers": 1, "rms_norm_eps": 1e-5}


class Drafter(nn.Module):
    """With the names of the released weights."""

    def __init__(self) -> None:
        super().__init__()
        self.config = ChameleonConfig(vocabulary_map={}, **SIZES, attn_implementation="eager")
        self.embed_tokens = nn.Embedding(9000, 32)
        self.fc = nn.Linear(64, 32)
        self.layers = nn.ModuleList([ChameleonDecoderLayer(self.config, 0)])

    def forward(self, codes: Tensor, features: Tensor) -> Tensor:
        """codes [T], features [T, D] -> [T, D]."""
        x = self.fc(torch.cat([self.embed_tokens(FIRST_CODE + codes), features], dim=-1))[None]
        where = torch.arange(len(codes))[None]
        mask = torch.full((len(codes), len(codes)), float("-inf")).triu(1)[None, None]
        rotary = ChameleonRotaryEmbedding(self.config)(x, where)
        out = self.layers[0](x, attention_mask=mask, position_ids=where, position_embeddings=rotary)
        return (out[0] if isinstance(out, tuple) else out)[0]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> Loaded:
    folder, family = tmp_path_factory.mktemp("anole"), FAMILIES["anole"]
    slow = family.make(folder)
    return Loaded(family, folder, instantiate(config(family, folder).model), slow)


@pytest.fixture(scope="module")
def drafter(tmp_path_factory) -> tuple[Path, Drafter]:
    torch.manual_seed(5)
    made = Drafter().eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.copy_(torch.rand_like(weight) + 0.5 if "norm" in name else torch.randn_like(weight) / 6)
    folder = tmp_path_factory.mktemp("drafter")
    torch.save(made.state_dict(), folder / "pytorch_model.bin")
    sizes = {key: SIZES[key] for key in SIZES if key != "vq_config"}
    (folder / "config.json").write_text(json.dumps(sizes | {"vq_config": {"n_embed": CODES}, "hidden_act": "silu"}))
    return folder, made


@torch.inference_mode()
def test_the_drafter_computes_what_its_own_layer_computes(loaded, drafter):
    """As it is trained and as decoding runs it. Catches a norm too few, norms of heads that are shared or taken after
    the rotation, half-split pairs, and an embedding that begins elsewhere."""
    target, (folder, slow) = loaded.target, drafter
    network, length = load_network(folder, target), 12
    codes = torch.randint(CODES, (length,), generator=torch.Generator().manual_seed(0))
    features = torch.randn(length, 32, generator=torch.Generator().manual_seed(1))
    embeddings = network.embedding(target.embed_weight)[codes][None]
    outputs = network(embeddings, features[None], target.rotation[None, 1 : length + 1], None)[0]
    mask = additive(torch.ones(1, length, length, dtype=torch.bool).tril(), torch.float32)
    rotary, layer = target.rotary[None, 1 : length + 1], FusedEagle(network, target.embed_weight)
    fused = layer(codes[None], features[None, None], rotary, mask, NoCache())[0, 0]
    for found in (outputs, fused):
        torch.testing.assert_close(found, slow(codes, features), rtol=0, atol=1e-5)


def test_it_decodes_with_the_tokens_of_plain_decoding(loaded, drafter):
    pipeline = pipeline_of(loaded, "tree=static", f"drafter.checkpoint={drafter[0]}")
    found, plain = (part.generate(PROMPTS[:2], [1, 2], 2) for part in (pipeline, pipeline.baseline()))
    assert torch.equal(found.tokens, plain.tokens)


def test_in_our_layout_it_comes_back(loaded, drafter, tmp_path):
    target, (folder, _) = loaded.target, drafter
    write_drafter(str(folder), target, str(tmp_path / "ours"))
    again, first = load_network(tmp_path / "ours", target), load_network(folder, target)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    assert first.attention_norm is not None


@pytest.mark.parametrize("name", ["layers.0.self_attn.k_norm.weight", "layers.0.input_layernorm.weight"])
def test_a_norm_that_is_missing_or_of_another_size_is_named(loaded, drafter, tmp_path, name):
    state = load_weights(drafter[0])[0]
    (tmp_path / "config.json").write_text((drafter[0] / "config.json").read_text())
    for value in (None, torch.zeros(3)):
        changed = {key: kept for key, kept in (state | {name: value}).items() if kept is not None}
        torch.save(changed, tmp_path / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match=r"(missing|mis-shaped) attention"):
            load_network(tmp_path, loaded.target)
