"""Greedy tokens equal those of the models' own generate, which is given the ids of their own processors."""

import pytest
import torch
from support.families import FAMILIES, LENGTH, SIDE, Loaded, pipeline_of
from support.own_generate import own_tokens
from transformers import GlmImageProcessor, PreTrainedTokenizerBase
from transformers.models.glm_image.image_processing_pil_glm_image import GlmImageImageProcessorPil

import lantern
from lantern.errors import LanternError
from lantern.noise import image_seed

PROMPT = "a red sphere"


def greedy(loaded: Loaded, cfg_scale: float) -> list[int]:
    settings = ("sampling.temperature=0", "sampling.top_p=1", "sampling.top_k=0", f"sampling.cfg_scale={cfg_scale}")
    plain = pipeline_of(loaded, "drafter=none", *settings).generate([PROMPT], [0], 1).tokens
    window = pipeline_of(loaded, "drafter=jacobi", *settings).generate([PROMPT], [0], 1).tokens
    assert torch.equal(plain, window)
    return plain[0].tolist()


def tokenizer_of(loaded: Loaded) -> PreTrainedTokenizerBase:
    return loaded.target.prompts.tokenizer


@pytest.mark.parametrize(
    "family", [FAMILIES[name] for name in ("janus_pro", "emu3", "anole", "glm_image", "simplear")], ids=str
)
def test_greedy_tokens_are_those_of_the_models_own_generate(loaded):
    """With its own guidance, cache and positions. Catches another template of guidance, and a misplaced token."""
    scale = 1.0 if loaded.family.model == "glm_image" else 3.0
    assert own_tokens(loaded.family.model, loaded.slow, loaded.target, scale) == greedy(loaded, scale)


@pytest.mark.parametrize("family", [FAMILIES["glm_image"]], ids=str)
def test_glm_images_prefix_is_that_of_its_own_processor(loaded):
    """Whose preview is always of 16 x 16."""
    text = tokenizer_of(loaded)
    inputs = GlmImageProcessor(GlmImageImageProcessorPil(), text)(
        text=[PROMPT], target_h=32 * SIDE, target_w=32 * SIDE, return_tensors="pt"
    )
    (prefix,) = loaded.target.prompts([PROMPT])
    ours, theirs = (text.decode(ids).replace(" ", "") for ids in (prefix.conditional, inputs.input_ids[0]))
    assert ours == theirs.replace("<sop>1616<eop>", "<sop>22<eop>")


@pytest.mark.parametrize("name", ["janus_pro", "glm_image", "anole"])
def test_a_model_that_is_loaded_already_is_wrapped_as_it_is(name, load):
    """Without a copy of its weights, and without a change to it. Catches the sizes of the yaml in place of its own."""
    loaded = load(FAMILIES[name])
    model, text = loaded.slow, tokenizer_of(loaded)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modules, attention = [type(part) for part in model.modules()], model.config._attn_implementation
    given = [f"model.prefix_len={LENGTH}", "dtype=float32", "device=cpu"]
    if name == "glm_image":
        given += [f"model.image_size={32 * SIDE}", "model.preview_side=2", "sampling.cfg_scale=2"]
    if name == "anole":
        sizes = {**loaded.family.changes["tokenizer"], "file": "vqgan.ckpt", "checkpoint": str(loaded.folder)}
        given += [f"model.image_size={2 * SIDE}", *(f"++model.tokenizer.{key}={value}" for key, value in sizes.items())]
    wrapped = lantern.wrap(model, text, None if name != "anole" else name, given)
    expected = pipeline_of(loaded, "drafter=none").generate([PROMPT], [image_seed(0, PROMPT, 0)], 1).tokens
    assert torch.equal(wrapped.generate([PROMPT], method="jacobi").tokens, expected)
    shared = {weight.data_ptr() for weight in model.parameters()}
    assert all(weight.data_ptr() in shared for weight in wrapped.target.transformer.layers.parameters())
    assert [type(part) for part in model.modules()] == modules
    assert model.config._attn_implementation == attention
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(weight.requires_grad for weight in model.parameters())


def test_what_cannot_be_wrapped_is_one_sentence(load):
    loaded = load(FAMILIES["anole"])
    text, model = tokenizer_of(loaded), loaded.slow
    for given, said in (
        ((model, text), "name='anole'"), ((model, None, "anole"), "processor=None"),
        ((model, text, "janus_pro"), "is no such model"),
    ):  # fmt: skip
        with pytest.raises(LanternError, match=said):
            lantern.wrap(*given)
    for wrong in (None, "janus", torch.nn.Linear(2, 2)):
        with pytest.raises(LanternError, match="is no model of transformers"):
            lantern.wrap(wrong, text)
