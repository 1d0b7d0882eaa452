"""The promise on the shipped weights: under shared noise every token of every image is plain decoding's, in float32."""

from itertools import product

import pytest
import torch
from support.paths import ROOT

import lantern
from lantern.data.prompts import load_prompts
from lantern.noise import image_seed

PROMPTS = load_prompts("demo", ROOT / "data" / "prompts")
SEEDS = [image_seed(0, prompt) for prompt in PROMPTS]
SETTINGS = {
    "plain": {"drafter": "none"},
    "chain": {"tree": "chain"},
    "static": {"tree": "static"},
    "eagle2": {"tree": "eagle2"},
    "parallel": {"drafter": "parallel", "tree": "static"},
    "jacobi": {"drafter": "jacobi"},
    "refined_jacobi": {"drafter": "refined_jacobi"},
    "branching_jacobi": {"drafter": "branching_jacobi"},
    "refined_branches": {"drafter": "refined_branches"},
}
COMPARED = [case for case in product(SETTINGS, (1, 8)) if case != ("plain", 8)]  # which the others are compared with


@pytest.fixture(scope="module")
def model():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"])


@pytest.fixture(scope="module", params=[1.0, 0.0], ids=["sampled", "greedy"])
def plain(request, model):
    """The settings and plain decoding's tokens [8, 256]."""
    settings = [f"sampling.temperature={request.param}"]
    pipeline = model.pipeline(drafter="none", acceptance="exact", settings=settings)
    return settings, pipeline.generate(PROMPTS, SEEDS, batch_size=8).tokens


@pytest.mark.full
@pytest.mark.parametrize(("name", "batch_size"), COMPARED)
def test_every_token_is_plain_decodings(model, plain, name, batch_size):
    """A draw within rounding of a boundary could differ; at these seeds none does."""
    settings, tokens = plain
    pipeline = model.pipeline(acceptance="exact", settings=settings, **SETTINGS[name])
    found = pipeline.generate(PROMPTS, SEEDS, batch_size)
    assert torch.equal(found.tokens, tokens)
    assert name == "plain" or found.tokens_per_step > 1.5


@pytest.mark.full
def test_refining_a_window_pays(model):
    """Catches refinements that reach the wrong places, which show in nothing but the tokens a step."""

    def steps(method: str, *settings: str) -> float:
        pipeline = model.pipeline(method=method, settings=settings)
        return pipeline.generate(PROMPTS, SEEDS, batch_size=8).tokens_per_step

    assert steps("refined_jacobi", "drafter.length=12") > 1.25 * steps("jacobi", "drafter.length=12")
    assert steps("refined_branches") > max(6.5, 1.15 * steps("refined_branches", "drafter.branches=0"))
