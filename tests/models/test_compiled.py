"""compile=true gives the same images as the uncompiled layers, and is a clear error where it cannot work."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from support.toy import PROMPTS, SEEDS, tiny_eagle, tiny_target
from torch import nn

from lantern.acceptance.exact import Exact
from lantern.errors import LanternError
from lantern.models.hf.target import HuggingFaceTarget
from lantern.models.llamagen import compiled
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.pipeline import Pipeline, pipelines
from lantern.sampling import Sampling
from lantern.trees.static import StaticTree
from lantern.verification import SharedNoise

TREE = StaticTree([[0], [1], [0, 0], [0, 0, 0]], name="small")


def pipeline_of(target, compile: bool = True) -> Pipeline:
    """With the inputs of layers handed out."""
    drafter = partial(tiny_eagle, layers=(1, 0))
    return pipelines(target, drafter, Exact(), SharedNoise(), Sampling(), "tiny", compile=compile)(TREE)


@pytest.fixture(scope="module")
def fast() -> Pipeline:
    return pipeline_of(tiny_target())


@pytest.mark.full
def test_a_compiled_pipeline_makes_the_same_images(fast):
    """Of rows of unequal lengths. Catches also a graph that falls back to eager in parts: its images are right, and
    twice as slow."""
    plain, counters = pipeline_of(tiny_target(), compile=False), torch._dynamo.utils.counters
    counters.clear()
    fast.generate(PROMPTS[:1], SEEDS[:1])
    assert counters["stats"]["unique_graphs"] == 1  # in parts: six
    assert not counters["unimplemented"]
    one, other = (pipeline.generate(PROMPTS[:4], SEEDS[:4], batch_size=3) for pipeline in (plain, fast))
    assert fast.target._compiled.cache_info().currsize == 1
    assert plain.target._compiled.cache_info().currsize == 0
    assert torch.equal(one.tokens, other.tokens)
    assert one.tokens_per_step == other.tokens_per_step > 1


@pytest.mark.full
def test_a_second_compiled_target_and_other_modules_run_their_own_weights(fast):
    """Catches a graph reused for another target, with the first one's weights as constants, and weights of other
    modules frozen by the options of a compiled target."""
    fast.generate(PROMPTS[:2], SEEDS[:2])
    target = tiny_target()
    with torch.no_grad():
        for weight in target.transformer.parameters():
            weight.mul_(0.8)
    other = LlamaGenTarget(target.transformer, target.conditioner, target.tokenizer)  # of the weights as they are now
    found, plain = (pipeline_of(other, compile).generate(PROMPTS[:2], SEEDS[:2]) for compile in (True, False))
    assert torch.equal(found.tokens, plain.tokens)
    layer = nn.Linear(4, 4)
    module, x = torch.compile(layer, dynamic=True), torch.ones(2, 4)
    with torch.no_grad():
        before = module(x)
        layer.weight.zero_()
        layer.bias.zero_()
        assert before.any()
        assert not module(x).any()


def test_without_a_compiler_the_remedy_is_named(monkeypatch):
    def none() -> str:
        raise compiled.InvalidCxxCompiler

    monkeypatch.setattr(compiled, "get_cpp_compiler", none)
    with pytest.raises(LanternError, match="install g\\+\\+, or leave compile out"):
        pipeline_of(tiny_target()).generate(PROMPTS[:1], SEEDS[:1])


def test_a_cache_in_half_precision_is_read_with_scores_in_full():
    """Of large scores, as of the last layers. Catches scores and probabilities that are rounded to eight bits."""
    generator, mask = torch.Generator().manual_seed(0), torch.zeros(1, 1, 3, 65)
    query, keys, values = (torch.randn(1, 2, size, 16, generator=generator) for size in (3, 70, 70))
    half = [part.bfloat16() for part in (4 * query, keys, values)]
    query, *read = (part.double() for part in half)
    expected = (query @ read[0][:, :, :65].mT).softmax(-1) @ read[1][:, :, :65]
    attend = compiled.CompiledTransformer._attend
    found = attend(None, query.float().transpose(1, 2), *half[1:], mask.bfloat16())
    assert (found.double() - expected).abs().max() < 0.01


def test_only_layers_that_are_ours_are_compiled():
    with pytest.raises(LanternError, match="compile=true is for LlamaGen's layers, Identity has others"):
        HuggingFaceTarget.configured(SimpleNamespace(transformer=nn.Identity()), 2.0, compiled=True)
