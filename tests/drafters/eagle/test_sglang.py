"""Drafters in the layout that SGLang's llama_eagle.py reads: names and config of its class, and the same function, by
transformers' own Llama layer, whose rotary pairs are SGLang's."""

import json

import pytest
import torch
from hydra.utils import instantiate
from safetensors.torch import load_file
from support.families import FAMILIES, config
from support.tiny_weights import load_tiny
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.export import write_ours, write_sglang
from lantern.drafters.loading import load_eagle
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import save_weights
from lantern.models.hf.target import HuggingFaceTarget
from lantern.sampling import Sampling
from lantern.trees.static import chain

HIDDEN, INNER, LENGTH = 32, 48, 9
SHAPES = {  # of SGLang's class: fc of [embedding; feature] with a bias, and a layer without its first norm
    "fc.weight": (HIDDEN, 2 * HIDDEN),
    "fc.bias": (HIDDEN,),
    **{f"layers.0.self_attn.{part}_proj.weight": (HIDDEN, HIDDEN) for part in "qkvo"},
    "layers.0.mlp.gate_proj.weight": (INNER, HIDDEN),
    "layers.0.mlp.up_proj.weight": (INNER, HIDDEN),
    "layers.0.mlp.down_proj.weight": (HIDDEN, INNER),
    "layers.0.post_attention_layernorm.weight": (HIDDEN,),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> HuggingFaceTarget:
    folder = tmp_path_factory.mktemp("glm_image")
    FAMILIES["glm_image"].make(folder)
    return instantiate(config(FAMILIES["glm_image"], folder).model)


def saved(folder, target, **sizes) -> EagleNetwork:
    """A random drafter of the target, in our layout."""
    torch.manual_seed(0)
    network = EagleNetwork(HIDDEN, 4, INNER, eps=1e-4, **sizes)
    nn.init.uniform_(network.ffn_norm.weight, 0.5, 1.5)
    fit = {"dim": HIDDEN, "num_heads": 4, "hidden_dim": INNER, "eps": 1e-4, "vocab_size": target.vocab_size}
    save_weights(folder, network.state_dict(), fit | {"target_hash": target.weights_hash, **sizes})
    return network.eval()


@torch.inference_mode()
def their_forward(folder, embeddings, features) -> torch.Tensor:
    """[1, T, D]: fc, then a Llama layer whose first norm is skipped, at the positions of the features."""
    state = load_file(folder / "model.safetensors")
    described = LlamaConfig(**json.loads((folder / "config.json").read_text()), attn_implementation="eager")
    layer = LlamaDecoderLayer(described, 0).eval()
    layer.input_layernorm = nn.Identity()
    own = {name.removeprefix("layers.0."): value for name, value in state.items() if name.startswith("layers.0.")}
    layer.load_state_dict(own, strict=True)
    x = torch.cat([embeddings, features], dim=-1) @ state["fc.weight"].T + state["fc.bias"]
    rotary = LlamaRotaryEmbedding(described)(x, torch.arange(LENGTH)[None])
    causal = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)[None, None]
    made = layer(x, attention_mask=causal, position_embeddings=rotary)
    return made[0] if isinstance(made, tuple) else made


def test_its_names_config_and_function_are_those_of_sglangs_class(target, tmp_path):
    """Catches rotary pairs of the other kind, heads in another order, and a norm with another epsilon."""
    network = saved(tmp_path / "ours", target)
    write_sglang(str(tmp_path / "ours"), target, str(tmp_path / "theirs"))
    assert {name: tuple(v.shape) for name, v in load_file(tmp_path / "theirs/model.safetensors").items()} == SHAPES
    described = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert described["architectures"] == ["LlamaForCausalLMEagle"]
    assert described["vocab_size"] == target.transformer.config.vocab_size
    assert (described["num_hidden_layers"], described["rms_norm_eps"]) == (1, 1e-4)
    embeddings, features = torch.randn(2, 1, LENGTH, HIDDEN)
    ours = network(embeddings, features, target.rotation[None, 1 : LENGTH + 1], None)
    torch.testing.assert_close(their_forward(tmp_path / "theirs", embeddings, features), ours, rtol=0, atol=1e-5)


def test_what_the_layout_has_no_place_for_is_refused_in_a_sentence(target, tmp_path):
    """Catches a drafter of three layers that is written without them, and codes that are no ids."""
    saved(tmp_path / "layered", target, layers=[0, 1, 1])
    with pytest.raises(LanternError, match=r"reads the inputs of layers \[0, 1, 1\] .*recipe=feature_lk"):
        write_sglang(str(tmp_path / "layered"), target, str(tmp_path / "theirs"))
    for family in ("janus_pro", "emu3"):
        FAMILIES[family].make(tmp_path / family)
        other = instantiate(config(FAMILIES[family], tmp_path / family).model)
        with pytest.raises(LanternError, match="codes otherwise than as ids"):
            write_sglang(str(tmp_path / "layered"), other, str(tmp_path / "theirs"))
    with pytest.raises(LanternError, match="LlamaGenTarget reads codes otherwise"):
        write_sglang(str(tmp_path / "layered"), load_tiny(tmp_path / "weights").target, str(tmp_path / "theirs"))


def test_an_export_is_written_over_and_never_read_as_a_drafter_of_another_layout(target, tmp_path):
    """Catches rotary pairs taken for LANTERN's, whose names are the same."""
    saved(tmp_path / "ours", target)
    for _ in range(2):
        write_sglang(str(tmp_path / "ours"), target, str(tmp_path / "theirs"))
    with pytest.raises(CheckpointError, match="is for a target with vocab_size=96"):
        load_eagle(tmp_path / "theirs", target, chain(2), Sampling())
    with pytest.raises(LanternError, match="is no drafter of this format"):
        write_ours(str(tmp_path / "ours"), target, str(tmp_path / "theirs"))
