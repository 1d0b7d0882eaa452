"""The promise on the shipped weights: under shared noise every token of every image is plain decoding's, in float32."""

from pathlib import Path

import pytest
import torch

import lantern
from lantern.noise import image_seed
from lantern.prompts import load_prompts

PROMPTS = load_prompts("demo", Path(__file__).parents[1] / "data" / "prompts")
SEEDS = [image_seed(0, prompt) for prompt in PROMPTS]
TREES = ("chain", "static", "eagle2")


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
@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("tree", [*TREES, None])
def test_every_token_is_plain_decodings(model, plain, tree, batch_size):
    """A draw within rounding of a boundary could differ; at these seeds none does. None: plain decoding itself."""
    settings, tokens = plain
    drafter = {"drafter": "none"} if tree is None else {"tree": tree}
    found = model.pipeline(acceptance="exact", settings=settings, **drafter).generate(PROMPTS, SEEDS, batch_size)
    assert torch.equal(found.tokens, tokens)
    assert tree is None or found.tokens_per_step > 1.5
