"""The Python interface of the README: parts by name on a miniature, images on the shipped weights."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from support.tiny_weights import load_tiny, write_tiny_weights

import lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.api import compose, overrides_of
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.errors import LanternError
from lantern.row_parallel import RowParallel
from lantern.runtime.files import replace_text
from lantern.trees.static import StaticTree, chain
from lantern.tuning.auto import AutoTree

PROMPTS = ["a red sphere on wood", "wood"]
LOSSLESS = {
    "jacobi": {"drafter": "jacobi", "settings": ["drafter.length=4"]},
    "method": {"method": "eagle2_shared"},
    "method with other parts": {"method": "lantern_pp", "acceptance": "exact", "verification": "shared_noise"},
    "own tree": {"tree": StaticTree([[0], [1], [0, 0]]), "acceptance": "exact"},
    "rows": {"method": "rows", "settings": ["drafter.window=8"]},
    "own drafter": {"drafter": RowParallel(8)},
    "partials": {  # which wait for the target, its sampling and its codebook
        "drafter": partial(Jacobi, length=4, start=Nearest(), redraw=redraw_coupled),
        "acceptance": partial(LanternPP, k=3, lam=1.0),
        "verification": "shared_noise",
    },
    "settings by name": {"settings": {"drafter": "jacobi", "drafter.length": 4, "verification": "shared_noise"}},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return load_tiny(tmp_path_factory.mktemp("weights"), side=8)


@pytest.fixture(scope="module")
def plain(tiny):
    return tiny.generate(PROMPTS, drafter="none").tokens


@pytest.mark.parametrize("parts", LOSSLESS.values(), ids=LOSSLESS)
def test_drafters_and_methods_go_by_name_and_what_is_exact_draws_plain_decodings_tokens(tiny, plain, parts):
    """Catches a name that is ignored, and a method that the usual parts override."""
    found = tiny.generate(PROMPTS, **parts)
    assert torch.equal(found.tokens, plain)
    if isinstance(parts.get("drafter"), RowParallel) or parts.get("method") == "rows":
        assert len(found.statistics.rounds) == 63
        assert found.statistics.rounds[0].parents is None  # no tree
    else:
        assert found.statistics.tokens_per_step > 1


def test_what_is_written_without_hydras_grammar_means_the_same(tiny, tmp_path):
    """Catches a value that Hydra reads as another: a text with a comma, null, a list, a folder with a brace."""
    listed = ["acceptance=lantern", "acceptance.delta=0.4", "sampling.top_k=5", "tree=static", "tree.paths=[[0],[0,0]]"]
    named = {"acceptance.delta": 0.4, "sampling.top_k": 5, "tree": "static", "tree.paths": [[0], [0, 0]]}
    found = tiny.pipeline(acceptance="lantern", settings=named)
    assert found.describe() == tiny.pipeline(settings=listed).describe()
    assert found.drafter.num_nodes == 3
    weights = write_tiny_weights(tmp_path / "a,b {c}='d'", side=8)
    model = lantern.load("llamagen", {"paths.weights": weights, "tf32": False}, device="cpu", dtype="float64")
    assert torch.equal(model.target.embed_weight, tiny.target.embed_weight)
    prompts = ["a\nb", "a\\b", 'say "hi", {ok}', "x\ty", "a ${x} b", "end\\"]
    given = {"data": "prompts", "data.prompts": prompts, "distil": {"depth": 5, "student": {"num_layers": 2}}}
    config = compose(overrides_of(given), command="train")
    assert (list(config.data.prompts), config.distil.depth, config.distil.student.num_layers) == (prompts, 5, 2)


class Sevenfold:
    """A rule that waits for the codebook alone."""

    name, verification, lossless, parameters = "sevenfold", "ratio", False, {}

    def __init__(self, codebook):
        self.near = LanternPP(codebook, k=7, lam=7.0)

    def judge(self, p, q, x, site):
        return self.near.judge(p, q, x, site)


def test_a_class_is_given_what_it_waits_for(tiny):
    own = tiny.generate(PROMPTS, acceptance=Sevenfold, tree=partial(chain, 3)).tokens
    settings = {"acceptance.k": 7, "acceptance.lam": 7, "tree.length": 3}
    same = tiny.generate(PROMPTS, acceptance="lantern_pp", verification="ratio", tree="chain", settings=settings)
    assert torch.equal(own, same.tokens)
    with pytest.raises(LanternError, match=r"LanternPP: .*'k' and 'lam'; give what LanternPP takes"):
        tiny.pipeline(acceptance=LanternPP)


def test_a_target_that_is_there_already_is_taken_as_it_is(tiny, plain):
    """Catches a second model that is built from conf/, guidance that is not the target's, and settings without
    effect."""
    model = lantern.load(tiny.target)
    assert model.target is tiny.target
    assert model.pipeline(drafter="jacobi").describe()["model"] == type(tiny.target).__name__
    assert torch.equal(model.generate(PROMPTS, drafter="none").tokens, plain)
    guided = lantern.load(tiny.target.configured(3.0))
    assert guided.pipeline(drafter="none").sampling.cfg_scale == 3
    assert lantern.load(tiny.target, {"sampling.cfg_scale": 1}).pipeline(drafter="none").sampling.cfg_scale == 1
    for wrong in ({"device": "cpu"}, {"dtype": "float32"}, {"settings": {"model.folder": "x"}}):
        with pytest.raises(LanternError, match="is for a model by name; this LlamaGenTarget is taken as it is"):
            lantern.load(tiny.target, **wrong)


def test_a_method_sets_its_parts_and_given_parts_replace_them(tiny):
    published = tiny.pipeline(method="lantern_pp").describe()
    assert (published["acceptance"], published["tree"]) == ("lantern_pp", "naive_extend_57")
    assert tiny.pipeline(method="lantern_pp", tree="chain").describe()["tree"].startswith("chain")
    assert tiny.pipeline(drafter="rows").describe()["drafter"] == "rows"
    assert tiny.pipeline().describe()["acceptance"] == "exact"


@pytest.mark.parametrize(("batch_size", "expected"), [(1, 1), (2, 2), (8, 2)])
def test_tree_auto_is_found_for_the_images_that_are_decoded_at_once(tiny, monkeypatch, batch_size, expected):
    """Catches a tree for one image that then decodes a batch, where it may be slower than plain decoding."""
    searched = []

    def resolve(self, decoders):
        searched.append((self.batch_size, self.prompts))
        return None

    monkeypatch.setattr(AutoTree, "resolve", resolve)
    tiny.generate(PROMPTS, tree="auto", batch_size=batch_size)
    assert searched == [(expected, PROMPTS)]  # a model need not read others


@pytest.fixture(scope="module")
def model():
    return lantern.load("llamagen", ["dtype=float32", "device=cpu"])


@pytest.mark.full
def test_generate_returns_images_tokens_and_statistics(model):
    result = model.generate(PROMPTS, tree="chain", acceptance="lantern_pp", settings=["acceptance.lam=3"])
    assert result.images.shape == (2, 3, 128, 128)
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    assert result.tokens.shape == (2, 256)
    assert result.statistics.tokens_per_step > 1
    assert repr(result) == f"Images(images [2, 3, 128, 128], tokens [2, 256], {result.statistics!r})"


def test_threads_take_turns(tiny):
    """Catches a cache that another thread's images are written to."""
    plain = [tiny.generate([prompt], seed=seed, drafter="none").tokens for seed in range(4) for prompt in PROMPTS]
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(tiny.generate, [prompt], seed, method="jacobi") for seed in range(4) for prompt in PROMPTS]
    assert all(torch.equal(call.result().tokens, own) for call, own in zip(calls, plain, strict=True))


def test_another_default_dtype_is_one_sentence(tiny):
    """Catches weights that are rounded on their way."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        for call in (lantern.load, partial(tiny.generate, PROMPTS)):
            with pytest.raises(LanternError, match="default dtype is torch"):
                call()
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_repeated_prompt_gives_another_image(tiny):
    tokens = tiny.generate(["wood", "wood"], drafter="none").tokens
    assert not torch.equal(tokens[0], tokens[1])
    seeded = tiny.generate(["wood", "wood"], seed=np.int64(0), drafter="none").tokens
    assert torch.equal(seeded, tiny.generate(["wood", "wood"], seed=0, drafter="none").tokens)


PROMPTS_REFUSED = [
    ("wood", "prompts='wood' is no list of texts"),
    (["a tiger on wood"], "unknown word 'tiger' in 'a tiger on wood'; did you mean water. Else this model knows 'a'"),
    ([""], "prompt '' has no words; this model reads 1 to 8"),
    ([], "prompts=.. has none"),
    (["a red \ud83d"], "is no list of texts"),  # half an emoji
    *((given, "is no list of texts; give one") for given in ([3], [None], iter(PROMPTS), None, {"wood"})),
]
MODELS_REFUSED = [
    ("llamagn", [], r"model=llamagn: .*model=llamagn is no option; did you mean llamagen\?"),
    ("llamagen", ["colour=red"], r"colour=red is no setting of a model; load\(\) takes model, sampling, device, "),
    ("llamagen", ["acceptance.lamb=3"], "acceptance.lamb=3 is a setting of no acceptance .* did you mean lam"),
    ("llamagen", ["draftr.checkpoint=x"], "draftr.checkpoint=x is no setting of a model; did you mean drafter"),
    ("llamagen", "device=cpu", "settings='device=cpu' is no list of texts"),
    (3, [], "names no option"),
    ("llamagen", {"drafter.checkpoint": "/nowhere"}, "nothing at drafter.checkpoint=/nowhere; give"),
    *(("llamagen", ["device=cpu", given], re.escape(f"{given} is no setting of a model; load() takes model, "))
      for given in ("acceptance=tv_budget", "++method=lantern_pp", "~drafter", "seed=3", "+sweep=k")),
]  # fmt: skip
PARTS_REFUSED = [
    ({"method": "refined_jacoby"}, "refined_jacoby is no option; did you mean refined_jacobi"),
    ({"acceptance": "lantern_pp", "settings": ["acceptance.lamb=3"]}, "acceptance.lamb is unknown to acceptance"),
    ({"settings": ["+acceptance.lam=3"]}, "full_key: acceptance"),
    ({"settings": ["acceptance=lantern_pp", "acceptance.lam=much"]}, "acceptance.lam=much is no number"),
    ({"settings": "sampling.top_k=500"}, "settings='sampling.top_k=500' is no list of texts"),
    ({"settings": ["sampling.top_k=${oc.decode:5}"]}, "oc.decode"),
    ({"tree": chain(2), "settings": {"tree.total": 30}}, "tree.total=30 is of a part that is given as an object"),
    *(({"settings": [given]}, re.escape(f"{given} is no setting of a part; settings= takes tree, acc"))
      for given in ("+method=jacobi", "seed=7", "~drafter", "model.folder=/nowhere", "+foo=1")),
]  # fmt: skip
REFUSED = [
    *((lambda tiny, given=given: tiny.generate(given), said) for given, said in PROMPTS_REFUSED),
    *((lambda _, given=given: lantern.load(*given), said) for *given, said in MODELS_REFUSED),
    *((lambda tiny, given=given: tiny.pipeline(**given), said) for given, said in PARTS_REFUSED),
    (lambda tiny: tiny.stream(PROMPTS), "is no list of texts; give one"),
    (lambda tiny: tiny.generate(PROMPTS, drafter="none", batch_size=1.5), "batch_size=1.5 is no whole number"),
    (lambda tiny: tiny.generate(["wood"], images_per_prompt=0), "images_per_prompt=0"),
    *((lambda tiny, seed=seed: tiny.generate(["wood"], seed), "is no whole number") for seed in ("x", 0.5, None)),
    (lambda _: lantern.load(config_dir="nowhere"), r"config_dir=.*nowhere is no folder"),
]


@pytest.mark.parametrize(("call", "sentence"), REFUSED)
def test_what_a_call_cannot_use_is_one_sentence(tiny, call, sentence):
    """Catches Hydra's own exceptions, values that only a command checks, and a part, a method, a precision or a seed
    that is asked for and read by nothing."""
    with pytest.raises(LanternError, match=sentence) as caught:
        call(tiny)
    assert "\n" not in str(caught.value)


def test_a_setting_given_to_load_may_be_of_a_part_that_is_none_of_the_usual_ones(tmp_path):
    """Catches LANTERN's δ or a window's length that is held against parts which nobody has chosen."""
    place = [f"paths.weights={write_tiny_weights(tmp_path)}", "dtype=float64", "device=cpu"]
    own = ["acceptance.delta=0.4", "drafter.length=12", "drafter.window=16", "+acceptance.k=7"]
    model = lantern.load("llamagen", [*place, *own[:3]])
    assert model.pipeline(acceptance="lantern").describe()["delta"] == 0.4
    assert model.pipeline(method="jacobi").drafter.depth == 12
    assert model.pipeline(drafter="rows").drafter.window == 16
    assert model.pipeline().describe()["acceptance"] == "exact"
    with pytest.raises(LanternError, match="full_key: acceptance"):
        lantern.load("llamagen", [*place, own[3]]).pipeline()


def test_a_part_may_be_chosen_among_the_settings(tiny):
    parts = ["drafter=jacobi", "drafter.length=4", "acceptance=lantern_pp", "verification=ratio"]
    found = tiny.pipeline(settings=[*parts, "sampling.top_k=9", "++acceptance.lam=3", "compile=false"])
    described = found.describe()
    assert [described[key] for key in ("drafter", "acceptance", "lam", "verification", "top_k")] == [
        "jacobi", "lantern_pp", 3, "ratio", 9,
    ]  # fmt: skip


@pytest.mark.parametrize(("parts", "told"), [
    ({"drafter": "jacobi", "tree": StaticTree([[0]])}, "tree=StaticTree changes nothing"),
    ({"drafter": "none", "settings": ["tree=chain", "tree.length=3"]}, "tree=chain, tree.length=3 changes nothing"),
    ({"tree": "auto", "drafter": "rows"}, "tree=auto changes nothing"),
    ({"tree": "chain", "settings": ["tree.length=3"]}, ""),
])  # fmt: skip
def test_a_tree_that_changes_nothing_is_told(tiny, caplog, parts, told):
    tiny.pipeline(**parts)
    assert told in caplog.text
    assert bool(told) == bool(caplog.records)


def test_a_call_says_how_to_sample_and_how_many_images_of_each_prompt(tiny):
    """In the words of diffusers. Catches a keyword that reaches nothing, and copies of one image."""
    sampling = {"temperature": 0.7, "guidance_scale": 3, "top_k": 5}
    given = tiny.generate(["wood", "sand"], drafter="none", images_per_prompt=2, **sampling)
    settings = ["sampling.temperature=0.7", "sampling.cfg_scale=3", "sampling.top_k=5"]
    same = tiny.generate(["wood", "wood", "sand", "sand"], drafter="none", settings=settings)
    assert torch.equal(given.tokens, same.tokens)
    assert not torch.equal(given.tokens[0], given.tokens[1])
    assert not torch.equal(given.tokens, tiny.generate(["wood", "sand"], drafter="none", images_per_prompt=2).tokens)
    pictures = given.pil()
    assert [picture.size for picture in pictures] == [given.images.shape[:1:-1]] * 4
    assert np.abs(np.asarray(pictures[3]) / 255 - given.images[3].permute(1, 2, 0).numpy()).max() < 0.003


def test_a_model_and_a_method_of_a_folder_of_ones_own_are_loaded_by_name_and_composed_once(tmp_path, monkeypatch):
    """Catches a call that takes longer to compose than to decode, and a yaml whose change has no effect."""
    own_folder, weights = tmp_path / "own", f"paths.weights={write_tiny_weights(tmp_path / 'weights')}"
    replace_text(own_folder / "model" / "mine.yaml", "defaults:\n  - llamagen\n")
    method = "# @package _global_\ndefaults:\n  - override /drafter: none\n  - override /tree: chain\n"
    replace_text(own_folder / "method" / "plainly.yaml", method)
    model = lantern.load("mine", [weights], device="cpu", dtype="float64", config_dir=str(own_folder))
    assert model.target.embed_weight.dtype == torch.float64
    calls, own = [], lantern.api.composed
    monkeypatch.setattr("lantern.api.composed", lambda *given: calls.append(given) or own(*given))
    for _ in range(2):
        assert model.generate(["wood"], method="plainly").statistics.tokens_per_step == 1
        assert len(calls) == 1
    replace_text(own_folder / "method" / "plainly.yaml", method.replace("drafter: none", "drafter: jacobi"))
    assert model.generate(["wood"], method="plainly").statistics.tokens_per_step > 1
    replace_text(own_folder / "acceptance" / "mine.yaml", "defaults:\n  - lantern\nsharpness: 2\n")
    lantern.load("mine", [weights, "acceptance.sharpness=3"], config_dir=str(own_folder))
