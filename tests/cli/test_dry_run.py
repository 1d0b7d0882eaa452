"""Memory from shapes: against what is really allocated for a model that exists, and against arithmetic for 7B ones."""

import re
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from support.commands import refusal
from support.configs import composed, composed_with_hydra

from lantern.cli.dry_run import Drafted, drafted, drafter_bytes, estimate, nbytes
from lantern.cli.main import _dry_run
from lantern.cli.sweep_callback import SweepReport
from lantern.types import Target

CPU, GPU = torch.device("cpu"), torch.device("cuda")
GIB = 2**30


def on_meta(model: str, dtype: str = "bfloat16") -> Target:
    return instantiate(composed("evaluate", f"model={model}", "device=meta", f"dtype={dtype}").model)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.full)])
def test_the_embedded_model_takes_what_was_estimated(dtype):
    """Catches a cache or weights counted in another precision than they are kept in."""
    real = instantiate(composed("evaluate", "device=cpu", f"dtype={dtype}").model)
    found = estimate(on_meta("llamagen", dtype), Drafted(26, 5), True, (1, 4), CPU)
    assert found.weights["target"] == nbytes(real.transformer)
    assert found.weights["image tokenizer"] == nbytes(real.tokenizer)
    real.allocate(4, 26)
    assert found.caches[4, real.num_tokens] == real.cache.store.nbytes
    assert found.caches[1, 0] < found.caches[1, 128] < found.caches[1, 256] < found.caches[4, 256]


@pytest.mark.parametrize(("settings", "nodes", "depth"), [
    (["drafter=none"], 1, 0), (["tree=static"], 26, 5), (["tree=auto"], 61, 6), (["drafter=jacobi"], 16, 15),
    (["drafter=sjd_pac"], 16, 12), (["drafter=refined_jacobi"], 19, 18),
    (["+method=refined_branches"], 61, 32), (["+method=branching_jacobi"], 61, 32),
    (["tree=auto", "drafter=jacobi"], 25, 24), (["tree=auto", "drafter=refined_jacobi"], 49, 24),
    (["tree=auto", "drafter=sjd_pac"], 28, 24),
    (["tree=auto", "drafter=none"], 1, 0), (["tree=auto", "drafter=parallel"], 61, 6),
])  # fmt: skip
def test_what_a_round_drafts_is_known_before_anything_is_loaded(settings, nodes, depth):
    """Catches a dry run that reckons with a tree that is not grown, or forgets the window."""
    cfg = composed("evaluate", *settings)
    assert drafted(instantiate(cfg.drafter), instantiate(cfg.tree)) == (nodes, depth)


@pytest.mark.parametrize("model", ["anole", "lumina_mgpt"])
def test_a_7b_chameleon_has_every_name_and_shape_of_the_published_architecture(model):
    """Catches a wrong width, depth or vocabulary in the yaml, and weights that are loaded for nothing."""
    target = on_meta(model)
    expected = {"embed_tokens.weight": (65536, 4096), "norm.weight": (4096,)}
    for i in range(32):
        attention = {f"self_attn.{part}_proj.weight": (4096, 4096) for part in "qkvo"}
        norms = {f"self_attn.{part}_norm.{kind}": (32, 128) for part in "qk" for kind in ("weight", "bias")}
        outer = {f"{part}_layernorm.weight": (4096,) for part in ("input", "post_attention")}
        wide = {f"mlp.{part}_proj.weight": (11008, 4096) for part in ("gate", "up")}
        layer = attention | norms | outer | wide | {"mlp.down_proj.weight": (4096, 11008)}
        expected |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    assert {name: tuple(value.shape) for name, value in target.transformer.state_dict().items()} == expected
    assert target.vocabulary.head.shape == target.embed_weight.shape == (8192, 4096)
    assert target.codebook.shape == (8192, 256)
    assert target.num_tokens == {"anole": 1024, "lumina_mgpt": 2304}[model]


def test_a_7b_models_estimate_equals_the_arithmetic():
    """Keys and values of Anole: 2 x 32 layers x 4,096 x 2 rows x 2 bytes a slot, 1 MiB."""
    target = on_meta("anole")
    found = estimate(target, Drafted(26, 5), True, (1,), GPU)
    assert found.caches[1, 1024] == (128 + 1024 + 26) * 2**20
    assert 12.4 * GIB < found.weights["target"] < 12.6 * GIB
    assert found.laid_out == 0
    assert found.drafter == drafter_bytes(target, 26, 1, GPU)
    assert 0.4 * GIB < found.drafter < 0.6 * GIB
    rest = found.drafter + found.laws + found.recorded
    assert found.total(1) == sum(found.weights.values()) + rest + found.caches[1, 1024]
    assert "1024 of 1024 tokens" in found.table(None)


def test_without_guidance_the_caches_are_half(capsys, monkeypatch):
    """Catches an estimate of two guidance rows for a setting that computes one."""
    choices = SimpleNamespace(runtime=SimpleNamespace(choices=SimpleNamespace(model="llamagen")))
    monkeypatch.setattr("lantern.cli.main.HydraConfig.get", lambda: choices)
    sizes = []
    for scale in (1, 2):
        _dry_run(composed("evaluate", f"sampling.cfg_scale={scale}", "dtype=float32", "batch_size=64"))
        found = re.search(r"keys and values, B = 64, 256 .* (\S+) GiB", capsys.readouterr().out)
        sizes.append(float(found[1]))
    assert sizes[1] == pytest.approx(2 * sizes[0], abs=0.02)


def test_a_gpus_recorded_passes_are_estimated_as_they_are_checked():
    """Catches a batch that fits by the estimate and is refused by the check before decoding."""
    target = on_meta("llamagen_c2i_b")
    sizes = {device.type: estimate(target, Drafted(26, 5), False, (1, 8), device).recorded for device in (CPU, GPU)}
    unrecorded = target.image_bytes(26)
    target.graphs = object()  # what the check sees on a GPU
    assert sizes == {"cpu": 0, "cuda": 8 * (target.image_bytes(26) - unrecorded)}
    assert "recorded passes, B = 8" in estimate(target, Drafted(26, 5), False, (1, 8), GPU).table(None)


@pytest.mark.parametrize(("model", "tokens", "codes"), [("janus_pro", 576, 16384), ("janus_pro_7b", 576, 16384),
                                                        ("emu3", 8100, 32768), ("liquid", 1024, 8192)])  # fmt: skip
def test_every_other_model_can_be_estimated_without_files(model, tokens, codes):
    target = on_meta(model)
    assert (target.num_tokens, target.vocab_size, len(target.codebook)) == (tokens, codes, codes)
    found = estimate(target, Drafted(26, 5), False, (1,), GPU)
    assert found.total(1) == sum(found.weights.values()) + found.laws + found.recorded + found.caches[1, tokens]


def test_a_sweep_of_dry_runs_ends_without_a_report(tmp_path, monkeypatch):
    """Catches the complaint that no point of a dry sweep has results."""
    registered = []
    monkeypatch.setattr("lantern.cli.sweep_callback.atexit.register", registered.append)
    overrides = ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={tmp_path}"]
    for dry in (True, False):
        cfg = composed_with_hydra("evaluate", *overrides, f"dry_run={dry}")
        report = SweepReport()
        report.on_multirun_start(cfg)
        report.on_multirun_end()
    assert len(registered) == 1


@pytest.mark.parametrize("settings", [["device=null"], ["prompts=['a ${x} b']"]])
def test_a_dry_run_of_a_value_that_no_run_can_use_is_one_sentence(settings, monkeypatch):
    """Catches a traceback before any check of the run itself."""
    said = refusal(monkeypatch, "evaluate.py", "dry_run=true", *settings)
    assert said.startswith(("error: device=null is no device", "error: prompts[0]: Interpolation key 'x' not found"))
