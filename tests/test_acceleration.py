"""Drafts inside the models' own generate, on tiny random models of every family."""

import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, partial

import pytest
import torch
from support import families
from support.families import CODES, FAMILIES
from support.generate_calls import IDS, Evens, make, own_call, rows_of
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, MaxTimeCriteria, StoppingCriteriaList

import lantern
from lantern import acceleration
from lantern.errors import LanternError
from lantern.models.hf.called_target import CalledTarget
from tools.accelerated import grown

NAMES = ("janus_pro", "emu3", "anole", "lumina_mgpt", "glm_image", "simplear", "liquid")
SAMPLED = {"do_sample": True, "top_k": 0}
NO_END = {"suppress_tokens": [CODES, CODES + 1]}  # of GLM-Image
TOP_ONE = {"do_sample": True, "top_k": 1}  # drawn, and certain


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    return cache(lambda name: make(name, tmp_path_factory.mktemp(name)))


@pytest.fixture
def prepared(model_of):
    """Of a family's name, its model and the arguments of a call; restored afterwards."""
    used = []

    def prepare(name):
        model = model_of(name)
        used.append(model)
        return model, own_call(name, model)

    yield prepare
    for model in used:
        lantern.restore(model)


def both(model, *, method="jacobi", **given):
    """The same call of the model's own generate and of the accelerated one, and the latter's statistics, restored."""
    own = model.generate(**given)
    with lantern.accelerated(model, method=method) as drafts:
        made = model.generate(**given)
    return own, made, drafts.statistics


def same(own, made) -> bool:
    return (own.shape, own.dtype, own.device) == (made.shape, made.dtype, made.device) and torch.equal(own, made)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_ids_are_those_of_the_models_own_generate_in_fewer_passes(prepared, name):
    """Two prompts of different lengths, guided. Catches a prompt that is made again, a pad that is read, a row end or a
    last id that is missing."""
    model, given = prepared(name)
    own, made, statistics = both(model, **given)
    assert same(own, made)
    assert not made.is_inference()
    assert statistics.tokens_per_step > 1


@pytest.fixture
def sizes(monkeypatch):
    """Of the trees that calls verify, in turn."""
    noted: list[int] = []
    verify = CalledTarget.verify

    def noting(self, tree):
        noted.append(tree.tokens.shape[1])
        return verify(self, tree)

    monkeypatch.setattr(CalledTarget, "verify", noting)
    return noted


@pytest.mark.parametrize(("lost", "tried"), [(0.0, 4), (10.0, 2), (0.5, 1)])
def test_a_window_that_does_not_pay_is_left_out_and_the_ids_stay(prepared, monkeypatch, caplog, sizes, lost, tried):
    """A pass of 16 tokens takes as long as 16 of one, or (tried 4: all) as one. Catches a trial that times the wrong
    rounds, one that loses more than it may, and a decision that is not carried out or not told."""
    pays = tried == 4
    monkeypatch.setattr(acceleration, "perf_counter", lambda: float(len(sizes) if pays else sum(sizes)))
    for name, value in {"SHORT": 0, "WARM": 1, "PLAIN": 1, "WINDOWS": 2, "LOST": lost}.items():
        monkeypatch.setattr(acceleration, name, value)
    model, given = prepared("glm_image")
    own, made, statistics = both(model, **given | NO_END)
    assert same(own, made)
    assert [size > 1 for size in sizes[:6]] == [False, False, *[True] * tried, *[False] * (4 - tried)]
    assert all((size > 1) == pays for size in sizes[5:-1])
    assert statistics.window_left_out == (None if pays else 2 + tried)
    assert ("does not pay" in caplog.text) != pays


def test_a_window_of_draws_is_never_left_out(prepared, monkeypatch, sizes):
    """Catches images of ratio methods that depend on the clock: without a window a seed has other draws."""
    monkeypatch.setattr(acceleration, "perf_counter", lambda: float(sum(sizes)))
    monkeypatch.setattr(acceleration, "SHORT", 0)
    model, given = prepared("glm_image")
    drafts = lantern.accelerate(model, method="scd")
    model.generate(**given | NO_END | SAMPLED)
    assert all(size > 1 for size in sizes[:-1])
    assert drafts.statistics.window_left_out is None


def test_an_end_that_may_be_drawn_ends_the_loop_once_all_images_have_drawn_it(prepared, sizes):
    """Catches passes behind the ends, and ids behind them."""
    model, given = prepared("glm_image")
    whole = model.generate(**given | NO_END)[:, IDS.shape[1] :]
    end = int(whole[0, 3])
    length = IDS.shape[1] + 1 + whole[0].tolist().index(end)
    given |= NO_END | {"eos_token_id": end}
    own, made, _ = both(model, **given)
    assert same(own, made)
    alone = {key: value[: len(value) // 2] for key, value in given.items() if isinstance(value, torch.Tensor)}
    sizes.clear()
    own, made, statistics = both(model, **given | alone)
    assert same(own, made)
    assert made.shape[1] == length < IDS.shape[1] + whole.shape[1]
    assert len(statistics.rounds) == len(sizes) < length - IDS.shape[1]
    assert statistics.tokens_per_step <= (length - IDS.shape[1] + max(sizes)) / len(sizes)


@pytest.mark.full
def test_greedy_ids_are_equal_at_12_layers_of_width_768(tmp_path, monkeypatch):
    monkeypatch.setattr(families, "EMU3", grown(families.EMU3))
    model = make("emu3", tmp_path)
    own, made, statistics = both(model, **own_call("emu3", model))
    assert same(own, made)
    assert statistics is not None


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("emu3", {"negative_prompt_ids": None, "negative_prompt_attention_mask": None}),
        ("emu3", {"guidance_scale": 0.5}), ("emu3", {"guidance_scale": 1.0, "num_return_sequences": 2} | TOP_ONE),
        ("anole", {"max_new_tokens": 7}), ("anole", {"begin_suppress_tokens": [4, 5, 6]}),
        ("anole", {"attention_mask": None}), ("emu3", {"max_new_tokens": 12}),
        ("glm_image", {"suppress_tokens": [CODES, CODES + 1]}), ("anole", {"logits_processor": [Evens(4, 5)]}),
        ("janus_pro", {"return_dict_in_generate": True}), ("anole", {"return_dict_in_generate": True}),
        ("janus_pro", {"num_return_sequences": 2} | TOP_ONE), ("janus_pro", {"guidance_scale": None}),
        ("janus_pro", {"generation_config": GenerationConfig(guidance_scale=2.0, do_sample=False)}),
    ],
)  # fmt: skip
def test_what_the_call_says_is_read(prepared, name, changes):
    model, given = prepared(name)
    if "generation_config" in changes:
        changes["generation_config"].generation_kwargs = {"boi_token_id": 9}
        given = {key: value for key, value in given.items() if key not in ("guidance_scale", "do_sample")}
    own, made, statistics = both(model, **given | changes)
    assert type(own) is type(made)
    assert same(*(getattr(one, "sequences", one) for one in (own, made)))
    assert statistics is not None


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("janus_pro", {"generation_mode": "text", "guidance_scale": None, "max_new_tokens": 3}, "makes no image"),
        ("emu3", {"prefix_allowed_tokens_fn": None, "max_new_tokens": 3}, "over half"),
        ("emu3", {"num_beams": 2, "guidance_scale": None, "max_new_tokens": 3}, "beam"),
        ("emu3", {"do_sample": True, "temperature": 1e-5}, "sampling.temperature"),
        ("emu3", {"repetition_penalty": 2.0}, "RepetitionPenalty"), ("emu3", {"do_sample": True, "min_p": 0.1}, "MinP"),
        ("anole", {"logits_processor": [Evens(4, 5, "codes")]}, "by the codes before"),
        ("anole", {"logits_processor": [Evens(4, 5, "calls")]}, "by the codes before"),
        ("anole", {"logits_processor": [Evens(4, 5, "scores")]}, "masks by scores"),
        ("anole", {"logits_processor": [Evens(4, 5, "change")], "do_sample": True}, "changes scores"),
        ("anole", {"return_dict_in_generate": True, "output_logits": True}, "output_logits"),
        ("anole", {"stopping_criteria": StoppingCriteriaList([MaxTimeCriteria(1e9)])}, "MaxTime"),
        ("anole", {"attention_mask": torch.tensor([[1, 0, 1, 1, 1]] * 2)}, "not on the left"),
        ("emu3", {"prefix_allowed_tokens_fn": lambda at, ids: [40 + at, 50], "max_new_tokens": 3}, "different"),
    ],
)  # fmt: skip
def test_what_is_not_covered_goes_to_the_models_own_generate_with_a_line(prepared, caplog, sizes, name, changes, said):
    model, given = prepared(name)
    changed = {key: value for key, value in (given | changes).items() if value is not None}
    torch.manual_seed(0)
    own = model.generate(**deepcopy(changed))
    lantern.accelerate(model)
    torch.manual_seed(0)
    made = model.generate(**changed)
    assert model.generate.statistics is None
    assert not sizes  # nothing was decoded in vain
    assert torch.equal(*(getattr(one, "sequences", one) for one in (own, made)))
    (record,) = [record for record in caplog.records if record.name == "lantern.acceleration"]
    assert said in record.getMessage()


def body(kind, **settings):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes | settings)).eval()


TWO = {"num_key_value_heads": 2}
DYNAMIC = {"max_position_embeddings": 16, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
DRAWN = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("mistral", TWO | {"sliding_window": 20}, "attends otherwise"), ("mistral", TWO | {"sliding_window": 21}, None),
        ("llama", DYNAMIC, "dynamic positions"), ("gpt2", {}, "num_key_value_heads"), ("cohere", {}, "changes logits"),
    ],
)  # fmt: skip
def test_bodies_of_any_kind_give_their_own_codes(kind, settings, said, caplog):
    """Catches windows shorter than the image, angles that depend on a pass, and a traceback from bodies of other kinds:
    nothing at the end of a prompt shows them."""
    model = body(kind, **settings)
    with torch.no_grad():
        [weight.mul_(5) for weight in model.parameters() if weight.dim() == 2]
    own, made, statistics = both(model, input_ids=IDS, suppress_tokens=[*range(60)], **DRAWN)
    assert same(own, made)
    assert (statistics is None) == bool(said)
    assert (said or "") in caplog.text


def test_a_constraint_that_counts_its_calls_is_asked_by_a_copy():
    def every_fifth():
        calls = 0

        def allowed(at, ids):
            nonlocal calls
            calls += 1
            return [50] if calls % 5 == 0 else [*range(60, 84)]

        return allowed

    model, ids = body("llama"), IDS[:1]
    own = model.generate(input_ids=ids, prefix_allowed_tokens_fn=every_fifth(), **DRAWN)
    lantern.accelerate(model)
    assert same(own, model.generate(input_ids=ids, prefix_allowed_tokens_fn=every_fifth(), **DRAWN))


@pytest.mark.parametrize("sees_all", [False, True])
def test_a_network_of_somebody_else_drafts_where_its_tree_passes_are_its_single_ones(tmp_path, caplog, sees_all):
    """As remote code is. Catches images of another law, and a refusal of code that reads a tree as it should."""
    model = make("emu3", tmp_path)
    given, body = own_call("emu3", model), model.get_decoder()
    kind = type(body)

    def forward(self, *args, attention_mask=None, **others):
        length, seen = [*getattr(attention_mask, "shape", ())[2:], 1, 1][:2]
        mask = torch.zeros_like(attention_mask) if sees_all and length not in (1, seen) else attention_mask
        return kind.forward(self, *args, attention_mask=mask, **others)

    body.__class__ = type("Network", (kind,), {"__module__": "remote", "forward": forward})
    own, made, statistics = both(model, **given)
    assert same(own, made)
    assert (statistics is None) == ("tree passes of remote.Network" in caplog.text) == sees_all


def test_codes_that_turn_out_to_change_what_may_be_drawn_are_the_own_loops_and_decoded_once(prepared, sizes):
    model, given = prepared("anole")
    third = model.generate(**given)[0, IDS.shape[1] + 2]
    given["prefix_allowed_tokens_fn"] = lambda _, ids: [*range(4, 4 + CODES - int((ids[7:8] == third).sum()))]
    own = model.generate(**given)
    lantern.accelerate(model)
    for is_decoded in (True, False):
        sizes.clear()
        assert same(own, model.generate(**given))
        assert bool(sizes) == is_decoded
    assert model.generate.statistics is None


def test_chameleons_hidden_logits_of_codes_are_not_drawn_from(prepared, caplog):
    """As it is, its forward hides them, and generate draws whatever its masks leave."""
    model, given = prepared("anole")
    model.model.vocabulary_mapping.image_tokens = list(range(4, 4 + CODES))
    own, made, statistics = both(model, **given)
    assert statistics is None
    assert "changes logits of codes" in caplog.text
    assert same(own, made)


@pytest.mark.parametrize("name", ["janus_pro", "emu3", "glm_image"])
def test_sampled_codes_have_the_models_own_law(prepared, name):
    """By frequencies: of the first codes, and of pairs of codes far behind. Catches another temperature, top-k or
    guidance, a seed that repeats, and a row that reads another's noise."""
    model, given = prepared(name)
    count, start = 1500, 0 if name == "janus_pro" else IDS.shape[1]
    one = {key: value[:1].repeat(150, 1) if isinstance(value, torch.Tensor) else value for key, value in given.items()}
    if name == "glm_image":
        one |= {"image_grid_thw": given["image_grid_thw"][:2].repeat(150, 1), "suppress_tokens": [CODES, CODES + 1]}
        one["images_per_sample"] = torch.full((150,), 2)
    asked = one | SAMPLED | {"temperature": 1.3, "top_k": 9, "top_p": 0.95}
    torch.manual_seed(1)
    drawn = {}
    for kind in ("own", "drafted"):
        if kind == "drafted":
            lantern.accelerate(model)
        drawn[kind] = torch.cat([model.generate(**asked) for _ in range(count // 150)])[:, start:]
    assert model.generate.statistics is not None
    places = [(0,), (7,), (0, 1)]
    for place in places:
        own, made = (Counter(tuple(row[i] for i in place) for row in rows.tolist()) for rows in drawn.values())
        expected = {key: (own.get(key, 0) + made.get(key, 0)) / 2 for key in {*own, *made}}
        common = [key for key, mean in expected.items() if mean >= 8]
        rest = [sum(side.get(key, 0) for key in expected.keys() - set(common)) for side in (own, made)]
        pairs = [(own.get(key, 0), made.get(key, 0)) for key in common] + [tuple(rest)] * (sum(rest) > 16)
        deviation = sum((a - b) ** 2 / (a + b) for a, b in pairs)
        degrees = max(1, len(pairs) - 1)
        assert deviation < degrees + 4.5 * (2 * degrees) ** 0.5 + 6, (place, deviation, degrees)


def test_seeds_come_from_torch_or_a_generator(prepared):
    model, given = prepared("janus_pro")
    lantern.accelerate(model)
    sampled = given | SAMPLED

    def draw(seed, generator=None):
        torch.manual_seed(seed)
        return model.generate(**sampled, **({"generator": generator} if generator else {}))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(*(draw(seed, torch.Generator().manual_seed(5)) for seed in (1, 2)))
    torch.manual_seed(1)
    first, second = model.generate(**sampled), model.generate(**sampled)
    assert not torch.equal(first, second)
    state = torch.get_rng_state()
    model.generate(**given)  # greedy
    assert torch.equal(state, torch.get_rng_state())
    for way in (sampled | {"min_p": 0.001}, sampled):  # the first is the model's own loop's
        once, again = (model.generate(**way, generator=torch.Generator().manual_seed(5)) for _ in range(2))
        assert torch.equal(once, again)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", ["janus_pro", "emu3", "glm_image"])
def test_a_drafters_window_gives_the_same_ids(prepared, name):
    """With an untrained drafter, and a second call with a longer prompt. Catches positions of the first."""
    model, given = prepared(name)
    longer = {**given}
    for key in {"input_ids", "inputs", "attention_mask"} & given.keys():
        longer[key] = torch.cat([given[key][:, :1]] * 3 + [given[key][:, 1:]], 1)
    if "prefix_allowed_tokens_fn" in given:
        longer["prefix_allowed_tokens_fn"] = rows_of(FAMILIES[name].first, FAMILIES[name].row_end, IDS.shape[1] + 2)
    own = [model.generate(**call) for call in (given, longer)]
    lantern.accelerate(model, method="refined_jacobi", drafter="random")
    for expected, call in zip(own, (given, longer), strict=True):
        assert same(expected, model.generate(**call))
        assert model.generate.statistics.drafter_forwards


def test_restore_gives_everything_back_and_a_copy_is_not_accelerated(prepared):
    model, given = prepared("emu3")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modules, attention = [type(part) for part in model.modules()], model.config._attn_implementation
    own = model.generate(**given)
    lantern.accelerate(model)
    lantern.accelerate(model, method="jacobi")  # twice is once
    assert same(own, model.generate(**given))
    for copied in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied.generate).__name__ == "method"
        assert copied.generate.__self__ is copied
    lantern.restore(model)
    lantern.restore(model)
    assert "generate" not in model.__dict__
    assert [type(part) for part in model.modules()] == modules
    assert model.config._attn_implementation == attention
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(weight.requires_grad for weight in model.parameters())


def test_weights_that_change_later_are_those_that_decode(prepared, tmp_path):
    """In place, as by an optimiser or a merged LoRA, and as new tensors. Catches what was made of the former ones."""
    model = make("janus_pro", tmp_path)
    given = own_call("janus_pro", model)
    lantern.accelerate(model)
    first = model.generate(**given)
    with torch.no_grad():
        model.model.generation_aligner.fc1.weight.mul_(-1.0)
        model.model.language_model.layers[0].mlp.up_proj.weight.mul_(-1.0)
    changed = model.generate(**given)
    model.double()
    wider = model.generate(**given)
    lantern.restore(model)
    assert same(wider, model.generate(**given))
    assert same(changed, model.float().generate(**given))
    assert not torch.equal(first, changed)


class Adapted(torch.nn.Linear):
    """As a layer of peft."""

    disable_adapters, active_adapters = False, ["default"]

    def forward(self, x):
        return self.base_layer(x) * (1 if self.disable_adapters else -1)


def adapt(parent, name):
    made = Adapted(2, 2)
    made.base_layer, made.weight, made.bias = getattr(parent, name), getattr(parent, name).weight, None
    setattr(parent, name, made)


CHANGES = {  # of Emu3, and whether they leave a model whose window drafts
    "hook": (lambda model: model.get_decoder().norm.register_forward_hook(lambda module, args, made: -made), False),
    "head": (lambda model: adapt(model, "lm_head"), False),
    "training": (lambda model: model.train(), False),
    "data": (lambda model: model.get_input_embeddings().weight.data.mul_(-1), True),
    "adapter": (lambda model: setattr(model.get_decoder().layers[0].mlp.up_proj, "disable_adapters", True), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changes_after_a_call_is_the_one_that_decodes(change, tmp_path):
    """Catches what was made of the former one: a copy of modules or of weights."""
    model = make("emu3", tmp_path)
    given, (carry_out, drafts) = own_call("emu3", model), CHANGES[change]
    adapt(model.get_decoder().layers[0].mlp, "up_proj")
    lantern.accelerate(model)
    before = model.generate(**given)
    carry_out(model)
    torch.manual_seed(0)  # of dropout
    made = model.generate(**given)
    assert (model.generate.statistics is not None) == drafts
    lantern.restore(model)
    torch.manual_seed(0)
    assert same(model.generate(**given), made)
    assert not torch.equal(before, made)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "within", [torch.inference_mode, partial(default_dtype, torch.bfloat16), partial(torch.device, "meta")]
)
def test_codes_are_the_same_where_a_script_has_other_defaults(within, prepared):
    """Also those of a model that was made within them."""
    model, given = prepared("emu3")
    calls, generator = (given, given | SAMPLED), torch.Generator()
    lantern.accelerate(model)
    made = [model.generate(**call, generator=generator.manual_seed(1)) for call in calls]
    with within():
        copied = deepcopy(model)
        drafts = lantern.accelerate(copied)
        again = [copied.generate(**call, generator=generator.manual_seed(1)) for call in calls]
    assert drafts.statistics is not None
    assert all(map(torch.equal, made, again))


def test_calls_of_several_threads_take_turns(prepared):
    model, given = prepared("glm_image")
    calls = [given, given | {name: given[name].flip(0) for name in ("input_ids", "attention_mask")}] * 4
    own = [model.generate(**call) for call in calls]
    lantern.accelerate(model)
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda call: model.generate(**call), calls))
    assert all(map(same, own, made))


def test_mistakes_are_one_sentence(prepared):
    model, given = prepared("emu3")
    for wrong in (None, torch.nn.Linear(2, 2)):
        with pytest.raises(LanternError, match="has no generate"):
            lantern.accelerate(wrong)
    with pytest.raises(LanternError, match="no_such"):
        lantern.accelerate(model, method="no_such")
    for lossy in ("gsd_sjd", "sjd_sv"):
        with pytest.raises(LanternError, match="keep the model's law"):
            lantern.accelerate(model, method=lossy)
    with pytest.raises(LanternError, match=r"nothing at drafter=/nowhere.*fit_drafter"):
        lantern.accelerate(model, method="refined_jacobi", drafter="/nowhere")
    own = model.generate(**given)
    lantern.accelerate(model, method="jacobi_paths")  # whose verification tosses coins: not for a greedy call
    assert same(own, model.generate(**given))
    lantern.accelerate(model, method="sjd_pp")
    with pytest.raises(LanternError, match="keep the model's law"):
        model.generate(**given | {"do_sample": True, "top_k": 0})
