"""The promise on the shipped weights, in float32: under shared noise every token of every image is plain
decoding's. On a miniature: every method of conf/method decodes, or says what to use instead."""

import pytest
import torch
from support.paths import CONF
from support.paths import PROMPTS as PROMPT_FILES
from support.tiny_weights import write_tiny_weights

import lantern
from lantern.api import Model
from lantern.data.prompts import load_prompts
from lantern.errors import LanternError
from lantern.noise import image_seed

EXACTLY = ("dtype=float64", "device=cpu")
PROMPTS = load_prompts("demo", PROMPT_FILES)
SEEDS = [image_seed(0, prompt) for prompt in PROMPTS]
METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml") if "latent" not in path.stem)
OF_COINS = ["block", "gsd_sjd", "entropy_sjd", "traversal", "jacobi_paths", "pathspec", "pathrelax", "sjd_block"]
OF_COINS += ["sjd_pp", "sjd_sv"]
NEEDS_NOISE = dict.fromkeys(OF_COINS, "use verification=shared_noise")  # what they say
NEEDS_NOISE |= {"sjd": "use drafter=jacobi"} | dict.fromkeys(("cascade", "synthetic"), "a temperature above 0")
SETTINGS = {
    "chain": {"tree": "chain"},
    "static": {"tree": "static"},
    "eagle2": {"tree": "eagle2"},
    "jacobi": {"drafter": "jacobi"},
    "refined_jacobi": {"drafter": "refined_jacobi"},
    "refined_branches": {"drafter": "refined_branches"},
}
GREEDY = "sampling.temperature=0"


@pytest.fixture(scope="module")
def model():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"])


def plain_tokens(model: Model, prompts: list[str], *settings: str) -> torch.Tensor:
    pipeline = model.pipeline(drafter="none", acceptance="exact", settings=settings)
    return pipeline.generate(prompts, SEEDS[: len(prompts)], batch_size=8).tokens


@pytest.fixture(scope="module")
def plain(model):
    """Plain decoding's tokens [2, 256]."""
    return plain_tokens(model, PROMPTS[:2])


@pytest.fixture(scope="module")
def greedy(model):
    """The same at temperature 0, [1, 256]."""
    return plain_tokens(model, PROMPTS[:1], GREEDY)


@pytest.mark.full
@pytest.mark.parametrize("name", SETTINGS)
def test_every_token_is_plain_decodings(model, plain, name):
    """A draw within rounding of a boundary could differ; at these seeds none does."""
    found = model.pipeline(acceptance="exact", **SETTINGS[name]).generate(PROMPTS[:2], SEEDS[:2], 2)
    assert torch.equal(found.tokens, plain)
    assert found.tokens_per_step > 1.5


@pytest.mark.full
@pytest.mark.parametrize("name", ["eagle2", "refined_branches"])
def test_at_temperature_0_every_token_is_plain_decodings(model, greedy, name):
    pipeline = model.pipeline(acceptance="exact", settings=[GREEDY], **SETTINGS[name])
    assert torch.equal(pipeline.generate(PROMPTS[:1], SEEDS[:1]).tokens, greedy)


@pytest.mark.full
def test_refining_a_window_pays(model):
    """Catches refinements that reach the wrong places, which show in nothing but the tokens a step."""

    def steps(method: str, *settings: str) -> float:
        return model.pipeline(method=method, settings=settings).generate(PROMPTS[:2], SEEDS[:2], 2).tokens_per_step

    assert steps("refined_jacobi", "drafter.length=12") > 1.25 * steps("jacobi", "drafter.length=12")
    assert steps("refined_branches") > max(6, 1.1 * steps("refined_branches", "drafter.branches=0"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("weights")
    return lantern.load("llamagen", [f"paths.weights={write_tiny_weights(folder, side=8)}", *EXACTLY])


@pytest.fixture(scope="module")
def tiny_plain(tiny) -> dict[str, torch.Tensor]:
    """Plain decoding's tokens [1, 64] of the miniature, by the temperature's setting."""
    return {setting: plain_tokens(tiny, PROMPTS[:1], setting) for setting in (GREEDY, "sampling.temperature=1")}


@pytest.mark.full
@pytest.mark.parametrize("name", METHODS)
def test_every_method_decodes_at_temperatures_1_and_0_or_names_one_that_does(tiny, tiny_plain, name):
    """Catches parts that do not fit each other, a method that crashes at temperature 0, and a lossless one whose tokens
    are not plain decoding's: at 0, or where it picks by plain decoding's noise."""
    for setting, plain in tiny_plain.items():
        if setting == GREEDY and name in NEEDS_NOISE:
            with pytest.raises(LanternError, match=NEEDS_NOISE[name]):
                tiny.pipeline(method=name, settings=[setting]).generate(PROMPTS[:1], SEEDS[:1])
            continue
        pipeline = tiny.pipeline(method=name, settings=[setting])
        tokens = pipeline.generate(PROMPTS[:1], SEEDS[:1]).tokens
        by_plain_noise = setting == GREEDY or pipeline.describe()["verification"] == "shared_noise"
        assert torch.equal(tokens, plain) or not (by_plain_noise and pipeline.lossless)
