"""On the shipped weights: output TV of the exact rule is its estimator's noise, a biased verifier's is not."""

import pytest
from support import paths
from support.mutants import NoSubtraction

import lantern
from lantern.acceptance.exact import Exact
from lantern.data.prompts import load_prompts
from lantern.metrics.output_tv import CodeDistance, OutputTV
from lantern.metrics.visits import record_visits
from lantern.noise import image_seed
from lantern.verification.ratio import Ratio

PROMPTS = load_prompts("demo", paths.PROMPTS)[:1]
SEEDS = [image_seed(0, prompt) for prompt in PROMPTS]
LEFT = "drafter.start={_target_: lantern.drafters.jacobi.starts.Left}"
RATIO = {
    "static": {"tree": "static"},
    "eagle2": {"tree": "eagle2"},
    "sampled": {"tree": "sampled"},
    "scd": {"drafter": "jacobi", "settings": [LEFT]},
}
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def model():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"])


@pytest.fixture(scope="module")
def codes(model):
    return CodeDistance(model.target.codebook)


@pytest.mark.parametrize("name", RATIO)
def test_of_the_exact_rule_under_ratio_verification_it_is_nothing_or_shrinks_with_more_redraws(model, codes, name):
    """Noise falls to a half with four times the redraws; a bias stays."""
    pipeline = model.pipeline(verification="ratio", **RATIO[name])
    stride = model.target.num_tokens // 10
    visits = record_visits(pipeline, PROMPTS, SEEDS, 1, stride)
    few, many = (OutputTV(1, 10, redraws).of_visits(visits, Exact(), Ratio(), codes) for redraws in (256, 1024))
    biased = OutputTV(1, 10, 256).of_visits(visits, NoSubtraction(), Ratio(), codes)
    if few["output_tv_redraws"] is None:
        assert few["output_tv"] < 1e-4
        assert few["code_distance"] < 1e-3
    else:
        assert few["output_tv"] < 0.08
        assert many["output_tv"] < 0.65 * few["output_tv"]
        assert many["code_distance"] < 0.75 * few["code_distance"]
    assert biased["output_tv"] > 0.03 + 2 * few["output_tv"]
