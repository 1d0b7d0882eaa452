"""LlamaGen's released files: shapes, every wrapper, LANTERN's conversion, and what does not fit."""

import argparse
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from safetensors.torch import load_file
from support.configs import composed
from support.families import save_t5
from support.full_size import released_shapes
from support.paths import GOLDEN
from torch import nn
from transformers import T5Config

from lantern.drafters.eagle.network import EagleNetwork
from lantern.errors import CheckpointError
from lantern.models import hub
from lantern.models.checkpoints import load_strictly, read_weights, save_weights
from lantern.models.conditioners import WordFeatures
from lantern.models.llamagen import released_checkpoints, transformer
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import FeedForward, Transformer
from lantern.pipeline import pipelines

SIZES = {
    "llamagen_c2i_b": ("c2i GPT-B", 256), "llamagen_c2i_l": ("c2i GPT-L", 256), "llamagen_c2i_xl": ("c2i GPT-XL", 576),
    "llamagen_c2i_xxl": ("c2i GPT-XXL", 576), "llamagen_c2i_3b": ("c2i GPT-3B", 576),
    "llamagen_t2i_stage1": ("t2i GPT-XL", 256), "llamagen_t2i_stage2": ("t2i GPT-XL", 1024),
}  # fmt: skip
VQ = {"multipliers": [1, 2], "channels": 32, "z_channels": 32, "codebook_size": 64, "device": "cpu"}
C2I = {"dim": 96, "num_layers": 3, "num_heads": 3, "num_classes": 7, "multiple_of": 64, "image_size": 8}


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=() if name.endswith("stage1") else pytest.mark.full) for name in SIZES]
)
def test_every_full_size_model_has_exactly_the_published_names_and_shapes(model, tmp_path):
    """Catches a wrong width, depth, head count or grid in a yaml; of files only flan-t5-xl's config.json is read."""
    sizes = {"d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32, "feed_forward_proj": "gated-gelu"}
    T5Config(**sizes).save_pretrained(tmp_path)
    words = [f"model.text_encoder.checkpoint={tmp_path}"] if "t2i" in model else []
    cfg = composed("evaluate", f"model={model}", "device=meta", "dtype=bfloat16", *words)
    target = instantiate(cfg.model)
    name, tokens = SIZES[model]
    shapes = {key: list(value.shape) for key, value in target.transformer.state_dict().items()}
    assert shapes == released_shapes(name)
    assert target.num_tokens == tokens
    assert target.codebook.shape == (16384, 8)
    assert target.transformer.dim // target.transformer.num_heads in (64, 100)


@pytest.fixture
def tokenizer(tmp_path):
    codes = read_weights(GOLDEN / "llamagen_vq_tiny.pt")
    codes["quantize.embedding.weight"] = codes["quantize.embedding.weight"].repeat(3, 1)[:160]
    torch.save({"model": codes}, tmp_path / "vq.pt")
    return released_checkpoints.load_tokenizer(str(tmp_path), "vq.pt", **VQ | {"codebook_size": 160})


def load(folder: Path, file: str, tokenizer, **changes: object) -> LlamaGenTarget:
    settings = {**C2I, "cfg_scale": 3.0, "dtype": "float32", "device": "cpu", **changes}
    return released_checkpoints.load_class_target(str(folder), file, tokenizer, **settings)


@pytest.mark.parametrize("wrapper", ["model", "module", "state_dict", None])
def test_every_wrapper_gives_the_greedy_first_tokens_of_the_reference(tmp_path, tokenizer, wrapper):
    """None is the consolidated FSDP file. Catches uninitialised weights and rotary factors left on the meta device."""
    state = read_weights(GOLDEN / "llamagen_c2i_tiny.pt") | {"freqs_cis": torch.full((17, 16, 2), 9.0)}  # never read
    training = {"optimizer": {"lr": 1e-4}, "steps": 9, "args": argparse.Namespace(cfg=3)}
    torch.save({wrapper: state} | training if wrapper else state, tmp_path / "c2i.pt")
    target = load(tmp_path, "c2i.pt", tokenizer)
    expected = load_file(GOLDEN / "llamagen_c2i_tiny_expected.safetensors")
    tokens, logits = expected["tokens"], expected["guided_logits"]
    target.allocate(2, 1)
    found = target.prefill(["3", "5"], torch.arange(2)).logits[:, 0]
    torch.testing.assert_close(found, logits[:, 0], rtol=0, atol=2e-5)
    assert torch.equal(found.argmax(-1), tokens[:, 0])
    assert target.decode(tokens).shape == (2, 3, 8, 8)


def test_weights_and_their_averages_in_one_file_are_two_targets(tmp_path, tokenizer):
    """Catches a drafter of one that is taken for the other, and rows of both under one hash."""
    raw = read_weights(GOLDEN / "llamagen_c2i_tiny.pt")
    torch.save({"model": raw, "ema": {name: 0.5 * value for name, value in raw.items()}}, tmp_path / "c2i.pt")
    averaged, named, other = (load(tmp_path, "c2i.pt", tokenizer, weights=part) for part in (None, "ema", "model"))
    assert torch.equal(other.transformer.output.weight, 2 * averaged.transformer.output.weight)
    assert named.weights_hash == averaged.weights_hash != other.weights_hash


def test_a_model_in_bfloat16_keeps_its_rotations_precise(tokenizer):
    """Catches rotary factors rounded to bfloat16 with the weights."""
    target = load(GOLDEN, "llamagen_c2i_tiny.pt", tokenizer)
    half = load(GOLDEN, "llamagen_c2i_tiny.pt", tokenizer, dtype="bfloat16")
    assert half.transformer.output.weight.dtype == torch.bfloat16
    assert torch.equal(half.rotation, target.rotation)


@torch.inference_mode()
def test_lanterns_conversion_computes_what_its_code_computes():
    """Catches q, k, v stacked in another order, permuted rotary pairs and swapped feed-forward parts."""
    state = released_checkpoints.read_transformer(GOLDEN / "lantern_llamagen_hf_tiny" / "model.safetensors")
    expected = load_file(GOLDEN / "lantern_llamagen_tiny_expected.safetensors")
    body = Transformer(96, 2, 3, 160, (16, 16), caption_dim=48, prefix_len=120)
    for block in body.layers:
        block.feed_forward = FeedForward(96, 192)  # the miniature's; full-size ones follow the usual rule
    load_strictly(body, state, "the miniature", "")
    ids, seen = expected["ids"], expected["caption_mask"].bool()
    tokens = torch.cat([ids, ids[:, :1]], dim=1)  # the last one is only predicted
    features = body(tokens, expected["cond"], seen, torch.zeros(1, dtype=torch.bool))[:, 1:]
    torch.testing.assert_close(features, expected["hidden"], rtol=0, atol=2e-5)
    torch.testing.assert_close(body.output(features), expected["logits"], rtol=0, atol=2e-5)


def test_files_of_another_size_family_or_codebook_are_one_clear_error_each(tokenizer):
    with pytest.raises(CheckpointError, match=r"missing layers\.3\..*another model=llamagen_"):
        load(GOLDEN, "llamagen_c2i_tiny.pt", tokenizer, num_layers=4)
    with pytest.raises(CheckpointError, match=r"unexpected cls_embedding\.uncond_embedding"):
        load(GOLDEN, "llamagen_t2i_tiny.pt", tokenizer)
    with pytest.raises(CheckpointError, match=r"quantize\.embedding\.weight \[64, 8\] instead of \[160, 8\]"):
        released_checkpoints.load_tokenizer(str(GOLDEN), "llamagen_vq_tiny.pt", **VQ | {"codebook_size": 160})


def test_a_file_of_another_resolution_by_its_name_is_one_clear_error(tmp_path, tokenizer):
    """Catches weights that fit by names and shapes and draw noise: those of 256, 384 and 512 pixels are alike."""
    for name in ("c2i_B_256.pt", "c2i_B_384.pt", "t2i_XL_stage2_512.pt"):
        (tmp_path / name).symlink_to(GOLDEN / "llamagen_c2i_tiny.pt")
    assert load(tmp_path, "c2i_B_256.pt", tokenizer, image_size=256).num_tokens == 128 * 128
    for name, pixels in (("c2i_B_384.pt", 384), ("t2i_XL_stage2_512.pt", 512)):
        message = rf"{name} holds weights for {pixels} pixels .* model\.image_size=256; give model\.image_size={pixels}"
        for folder in (tmp_path, tmp_path / name):  # a folder that holds the file, and the file itself
            with pytest.raises(CheckpointError, match=message):
                load(folder, name, tokenizer, image_size=256)


def test_a_conversion_from_the_hub_is_held_to_its_resolution(tmp_path, monkeypatch):
    """Catches weights of stage I that draw stage II's 1,024 tokens."""
    load = converted(tmp_path, monkeypatch)
    assert load(image_size=256).num_tokens == 256
    with pytest.raises(CheckpointError, match=r"config\.json has block_size=256, but this model has block_size=1024"):
        load(image_size=512)


def converted(tmp_path: Path, monkeypatch, **changes: object) -> Callable[..., LlamaGenTarget]:
    """Loads LANTERN's conversion, with changes to its config.json, as from the Hub."""

    def fetch(_: str, name: str, **__: object) -> str:
        shutil.copy(GOLDEN / "lantern_llamagen_hf_tiny" / name, tmp_path / name)
        if name == "config.json":
            config = json.loads((tmp_path / name).read_text()) | changes
            (tmp_path / name).write_text(json.dumps(config))
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    hub._of_hub.cache_clear()  # of the test before
    monkeypatch.setattr(transformer, "feed_forward_dim", lambda *_: 192)  # the miniature's, as above
    images, words = SimpleNamespace(codebook=torch.zeros(160, 8), downsampling=16), WordFeatures(["a"], 48, 120)
    sizes = {"dim": 96, "num_layers": 2, "num_heads": 3, "dtype": "float32", "device": "cpu"}
    return partial(released_checkpoints.load_text_target, "owner/name", "model.safetensors", images, words, **sizes)


@pytest.mark.parametrize(("name", "value"), [("rope_base", 5e5), ("hidden_act", "gelu")])
def test_a_conversion_that_computes_something_else_is_refused_by_name(name, value, tmp_path, monkeypatch):
    """Catches a fine-tune whose weights fit and decode wrongly in silence."""
    with pytest.raises(CheckpointError, match=rf"config\.json has {name}={value}, but this model has {name}="):
        converted(tmp_path, monkeypatch, **{name: value})(image_size=256)


def test_a_conversions_norms_have_the_epsilon_of_its_config(tmp_path, monkeypatch):
    """Catches LlamaGen's 1e-5 where LANTERN's code, and so its measurements, had another."""
    logits = []
    for eps in (1e-5, 1e-2):
        target = converted(tmp_path, monkeypatch, rms_norm_eps=eps)(image_size=256)
        assert {norm.eps for norm in target.transformer.modules() if isinstance(norm, nn.RMSNorm)} == {eps}
        target.allocate(1, 1)
        logits.append(target.prefill(["a"], torch.arange(1)).logits)
    assert not torch.allclose(*logits, atol=1e-3)


@pytest.mark.full
def test_a_size_is_timed_without_any_of_its_files():
    """Catches benchmark_xl requiring a file, and random weights without a fixed seed."""
    small = ["model.dim=64", "model.num_layers=1", "model.num_heads=1", "model.image_size=64"]
    cfg = composed("evaluate", "+experiment=benchmark_xl", "device=cpu", "dtype=float32", "sampling.top_k=0", *small)

    def tokens(drafter: str) -> torch.Tensor:
        given = composed("evaluate", f"drafter={drafter}").drafter
        parts = (instantiate(part) for part in (cfg.model, given, cfg.acceptance, cfg.verification, cfg.sampling))
        made = pipelines(*parts, "tiny")(instantiate(cfg.tree)).generate(["a red ring on sand"], [1])
        return made.tokens

    drafted = tokens("eagle_random")
    assert drafted.shape == (1, 16)
    assert torch.equal(drafted, tokens("eagle_random"))
    assert torch.equal(drafted, tokens("none"))


def evaluate(folder: Path, model: str, changes: dict, prompts: list[str], **sampling: object) -> torch.Tensor:
    """Evaluates a random EAGLE drafter on a model as its yaml loads it -> tokens, which equal plain decoding's."""
    cfg = composed("evaluate", f"model={model}", "dtype=float32", "device=cpu", "acceptance=exact", "tree=static")
    OmegaConf.set_struct(cfg, False)
    tokenizer = {**VQ, "checkpoint": str(folder), "file": "vq.pt", "codebook_size": 160}
    body = {"checkpoint": str(GOLDEN), "dim": 96, "num_layers": 3, "num_heads": 3, "multiple_of": 64, "image_size": 8}
    cfg.model = OmegaConf.merge(cfg.model, body, {"tokenizer": tokenizer}, changes)
    cfg.sampling = OmegaConf.merge(cfg.sampling, sampling)
    target = instantiate(cfg.model)
    fit = {"dim": 96, "num_heads": 3, "hidden_dim": 256, "vocab_size": 160, "target_hash": target.weights_hash}
    torch.manual_seed(1)
    save_weights(folder / "drafter", EagleNetwork(96, 3, 256).state_dict(), fit)
    cfg.drafter.checkpoint = str(folder / "drafter")
    parts = {name: instantiate(cfg[name]) for name in ("drafter", "acceptance", "verification", "sampling")}
    pipeline = pipelines(target, **parts, name=model)(instantiate(cfg.tree))
    made = pipeline.generate(prompts, range(len(prompts)), 2)
    assert torch.equal(made.tokens, pipeline.baseline().generate(prompts, range(len(prompts)), 2).tokens)
    assert pipeline.target.decode(made.tokens).shape[1:] == (3, 8, 8)
    return made.tokens


@pytest.mark.full
@pytest.mark.usefixtures("tokenizer")
def test_models_decode_as_their_yamls_load_them(tmp_path):
    """Catches anything between the yaml and the tokens that departs from the released code."""
    changes = {"file": "llamagen_c2i_tiny.pt", "num_classes": 7}
    tokens = evaluate(tmp_path, "llamagen_c2i_b", changes, ["3", "5"], temperature=0, cfg_scale=3.0)
    assert torch.equal(tokens, load_file(GOLDEN / "llamagen_c2i_tiny_expected.safetensors")["tokens"])
    save_t5(tmp_path / "t5", hidden_size=48)
    t5 = {"checkpoint": str(tmp_path / "t5")}
    changes = {"file": "llamagen_t2i_tiny.pt", "text_encoder": t5}
    assert not torch.equal(*evaluate(tmp_path, "llamagen_t2i_stage1", changes, ["a red sphere on wood", "sand"]))
