"""The promise on the shipped weights, in float32: under shared noise every token of every image is plain
decoding's, and at temperature 0 a lossless method makes its tokens, or says what to use instead."""

from itertools import product

import pytest
import torch
from hydra.utils import instantiate
from support.configs import composed
from support.paths import CONF
from support.paths import PROMPTS as PROMPT_FILES

import lantern
from lantern.data.prompts import load_prompts
from lantern.errors import LanternError
from lantern.noise import image_seed
from lantern.pipeline import pipelines

PROMPTS = load_prompts("demo", PROMPT_FILES)
SEEDS = [image_seed(0, prompt) for prompt in PROMPTS]
METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml") if "latent" not in path.stem)
OF_COINS = (
    "block",
    "gsd_sjd",
    "entropy_sjd",
    "traversal",
    "jacobi_paths",
    "pathspec",
    "pathrelax",
    "sjd_block",
    "sjd_pp",
    "sjd_sv",
)
NEEDS_NOISE = dict.fromkeys(OF_COINS, "use verification=shared_noise")  # what they say
NEEDS_NOISE |= {"sjd": "use drafter=jacobi"} | dict.fromkeys(("cascade", "synthetic"), "a temperature above 0")
SETTINGS = {
    "plain": {"drafter": "none"},
    "chain": {"tree": "chain"},
    "static": {"tree": "static"},
    "eagle2": {"tree": "eagle2"},
    "parallel": {"drafter": "parallel", "tree": "static"},
    "jacobi": {"drafter": "jacobi"},
    "refined_jacobi": {"drafter": "refined_jacobi"},
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
    count = max(3, batch_size)
    found = pipeline.generate(PROMPTS[:count], SEEDS[:count], batch_size)
    assert torch.equal(found.tokens, tokens[:count])
    assert name == "plain" or found.tokens_per_step > 1.5


@pytest.mark.full
def test_refining_a_window_pays(model):
    """Catches refinements that reach the wrong places, which show in nothing but the tokens a step."""

    def steps(method: str, *settings: str) -> float:
        pipeline = model.pipeline(method=method, settings=settings)
        return pipeline.generate(PROMPTS, SEEDS, batch_size=8).tokens_per_step

    assert steps("refined_jacobi", "drafter.length=12") > 1.25 * steps("jacobi", "drafter.length=12")
    assert steps("refined_branches") > max(6.5, 1.15 * steps("refined_branches", "drafter.branches=0"))


@pytest.fixture(scope="module")
def greedy(model):
    """Plain decoding's tokens of the first image at temperature 0 [1, 256]."""
    pipeline = model.pipeline(drafter="none", acceptance="exact", settings=["sampling.temperature=0"])
    return pipeline.generate(PROMPTS[:1], SEEDS[:1]).tokens


@pytest.mark.full
@pytest.mark.parametrize("name", METHODS)
def test_every_method_decodes_at_temperature_0_or_names_one_that_does(model, greedy, name):
    """Catches a method that crashes at temperature 0, and a lossless one whose tokens are not plain decoding's."""
    cfg = composed("evaluate", f"+method={name}", "sampling.temperature=0")
    groups = ("drafter", "acceptance", "verification", "sampling")

    def decode():
        parts = {group: instantiate(cfg[group]) for group in groups}
        pipeline = pipelines(model.target, **parts)(instantiate(cfg.tree))
        made = pipeline.generate(PROMPTS[:1], SEEDS[:1]).tokens
        assert torch.equal(made, greedy) or not pipeline.lossless

    if name in NEEDS_NOISE:
        with pytest.raises(LanternError, match=NEEDS_NOISE[name]):
            decode()
    else:
        decode()
