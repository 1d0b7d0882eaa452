"""Every method on the shipped weights at temperature 0: a lossless one makes plain decoding's tokens, and one that
cannot decode greedily says what to use instead."""

import pytest
import torch
from hydra.utils import instantiate
from support.configs import composed
from support.paths import ROOT

import lantern
from lantern.data.prompts import load_prompts
from lantern.errors import LanternError
from lantern.noise import image_seed
from lantern.pipeline import pipelines

METHODS = sorted(path.stem for path in (ROOT / "conf" / "method").glob("*.yaml") if "latent" not in path.stem)
RATIO = ("block", "gsd_sjd", "entropy_sjd")
NEEDS_NOISE = dict.fromkeys(RATIO, "use verification=shared_noise") | {"sjd": "use drafter=jacobi"}  # what it says
PROMPTS = load_prompts("demo", ROOT / "data" / "prompts")[:1]
SEEDS = [image_seed(0, prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def model():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"])


@pytest.fixture(scope="module")
def greedy(model):
    """Plain decoding's tokens of the first image at temperature 0 [1, 256]."""
    pipeline = model.pipeline(drafter="none", acceptance="exact", settings=["sampling.temperature=0"])
    return pipeline.generate(PROMPTS, SEEDS).tokens


@pytest.mark.full
@pytest.mark.parametrize("name", METHODS)
def test_every_method_decodes_at_temperature_0_or_names_one_that_does(model, greedy, name):
    """Catches a method that crashes at temperature 0, and a lossless one whose tokens are not plain decoding's."""
    cfg = composed("evaluate", f"+method={name}", "sampling.temperature=0")
    groups = ("drafter", "acceptance", "verification", "sampling")

    def decode():
        parts = {group: instantiate(cfg[group]) for group in groups}
        pipeline = pipelines(model.target, **parts)(instantiate(cfg.tree))
        made = pipeline.generate(PROMPTS, SEEDS).tokens
        assert torch.equal(made, greedy) or not pipeline.lossless

    if name in NEEDS_NOISE:
        with pytest.raises(LanternError, match=NEEDS_NOISE[name]):
            decode()
    else:
        decode()
