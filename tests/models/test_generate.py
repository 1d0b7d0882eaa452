"""Greedy tokens equal those of the models' own generate, which is given the ids of their own processors."""

import json
from copy import deepcopy

import pytest
import torch
from hydra.utils import instantiate
from support.configs import composed
from support.families import FAMILIES, LENGTH, SIDE, Loaded, pipeline_of
from support.generate_calls import own_tokens
from transformers import GlmImageProcessor, PreTrainedTokenizerBase
from transformers.models.glm_image.image_processing_pil_glm_image import GlmImageImageProcessorPil

import lantern
from lantern.errors import LanternError
from lantern.noise import image_seed
from lantern.sampling import Sampling

PROMPT = "a red sphere"


def greedy(loaded: Loaded, cfg_scale: float) -> list[int]:
    settings = ("sampling.temperature=0", "sampling.top_p=1", "sampling.top_k=0", f"sampling.cfg_scale={cfg_scale}")
    plain = pipeline_of(loaded, "drafter=none", *settings).generate([PROMPT], [0], 1).tokens
    window = pipeline_of(loaded, "drafter=jacobi", *settings).generate([PROMPT], [0], 1).tokens
    assert torch.equal(plain, window)
    return plain[0].tolist()


@pytest.mark.parametrize("family", [FAMILIES["lumina_mgpt2"]], ids=str)
def test_lumina_2_reads_an_image_of_its_size_behind_the_prompt(loaded):
    """Its unconditional row begins at the image. Catches size tokens of another unit, and a begin that it lacks."""
    ids = tokenizer_of(loaded).convert_tokens_to_ids
    (prefix,) = loaded.target.prompts([PROMPT])
    image = ids(["<racm3:break>", "<reserved08801>", "<reserved08801>"])
    assert prefix.unconditional == image
    assert prefix.conditional[0] == ids("<end>")
    assert prefix.conditional[-4:] == [ids("<reserved08706>"), *image]


def tokenizer_of(loaded: Loaded) -> PreTrainedTokenizerBase:
    return loaded.target.prompts.tokenizer


@pytest.mark.parametrize(
    "family",
    [FAMILIES[name] for name in ("janus_pro", "emu3", "anole", "glm_image", "simplear", "lumina_mgpt2")],
    ids=str,
)
def test_greedy_tokens_are_those_of_the_models_own_generate(loaded):
    """With its own guidance, cache and positions. Catches another template of guidance, and a misplaced token."""
    scale = 1.0 if loaded.family.model == "glm_image" else 3.0
    (prefix,) = loaded.target.prompts([PROMPT])
    assert own_tokens(loaded.family.model, loaded.slow, prefix) == greedy(loaded, scale)


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


@pytest.mark.parametrize("name", ["janus_pro", "glm_image", "anole", "lumina_mgpt2"])
def test_a_model_that_is_loaded_already_is_wrapped_as_it_is(name, load):
    """Without a copy of its weights, and without a change to it. Catches the sizes of the yaml in place of its own."""
    loaded = load(FAMILIES[name])
    model, text = loaded.slow, tokenizer_of(loaded)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modules, attention = [type(part) for part in model.modules()], model.config._attn_implementation
    given = [f"model.prefix_len={LENGTH}", "dtype=float32", "device=cpu"]
    if name == "glm_image":
        given += [f"model.image_size={32 * SIDE}", "model.preview_side=2", "sampling.cfg_scale=2"]
    if name in ("anole", "lumina_mgpt2"):
        sizes = {**loaded.family.changes["tokenizer"], "file": "vqgan.ckpt", "checkpoint": str(loaded.folder)}
        given += [f"model.image_size={2 * SIDE}", *(f"++model.tokenizer.{key}={value}" for key, value in sizes.items())]
    if name == "lumina_mgpt2":
        given += [f"model.first_code={loaded.family.changes['first_code']}"]
    wrapped = lantern.wrap(model, text, None if name in ("janus_pro", "glm_image") else name, given)
    expected = pipeline_of(loaded, "drafter=none").generate([PROMPT], [image_seed(0, PROMPT, 0)], 1).tokens
    assert torch.equal(wrapped.generate([PROMPT], method="jacobi").tokens, expected)
    shared = {weight.data_ptr() for weight in model.parameters()}
    assert all(weight.data_ptr() in shared for weight in wrapped.target.transformer.layers.parameters())
    assert [type(part) for part in model.modules()] == modules
    assert model.config._attn_implementation == attention
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("family", [FAMILIES["janus_pro"], FAMILIES["glm_image"]], ids=str)
def test_sampling_is_by_default_as_the_checkpoints_generation_config_says(loaded, tmp_path):
    """Catches the yaml's settings for a fine-tune that was made for others; what a user gives is taken before them."""
    own = {"temperature": 0.5, "top_k": 3, "guidance_scale": 9.0}
    folder = tmp_path / "vision_language_encoder" if loaded.family.model == "glm_image" else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "generation_config.json").write_text(json.dumps(own | {"top_p": None, "use_cache": True}))
    given = [f"model={loaded.family.model}", f"model.checkpoint={tmp_path}"]
    top_p = 0.75 if loaded.family.model == "glm_image" else 1.0
    assert instantiate(composed("evaluate", *given).sampling) == Sampling(0.5, 3, top_p, 9.0)
    assert instantiate(composed("train", *given, "sampling.top_k=0").sampling) == Sampling(0.5, 0, top_p, 9.0)
    model = deepcopy(loaded.slow)
    model.generation_config.temperature, model.generation_config.guidance_scale = 0.5, 9.0
    held = lantern.wrap(model, tokenizer_of(loaded), settings=["dtype=float32", "device=cpu", "sampling.top_k=7"])
    assert held.pipeline(method="jacobi").sampling == Sampling(0.5, 7, top_p, 9.0)


def test_what_cannot_be_wrapped_is_one_sentence(load):
    loaded = load(FAMILIES["anole"])
    text, model = tokenizer_of(loaded), loaded.slow
    for given, said in (
        ((model, text), "name='anole'"), ((model, None, "anole"), "processor=None"),
        ((model, text, "janus_pro"), "is no JanusForConditionalGeneration"),
    ):  # fmt: skip
        with pytest.raises(LanternError, match=said):
            lantern.wrap(*given)
    janus = load(FAMILIES["janus_pro"])
    adapted = deepcopy(janus.slow)
    adapted.model.generation_head.vision_head.__class__ = type("Adapted", (torch.nn.Linear,), {})
    with pytest.raises(LanternError, match="merge adapters"):
        lantern.wrap(adapted, tokenizer_of(janus))
    for wrong in (None, "janus", torch.nn.Linear(2, 2)):
        with pytest.raises(LanternError, match="is no model of transformers"):
            lantern.wrap(wrong, text)
