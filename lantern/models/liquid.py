"""Liquid (2412.04332): a plain causal language model whose vocabulary goes on with the codes of Chameleon's VQGAN.
Other such models need their own yaml: the body's class comes from the model type in the geometry."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from lantern.models.chameleon.vqgan import ChameleonVQGAN
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary

BEGIN, IMAGE, NOTHING = "<bos>", "<boi>", "<unconditional>"
TEMPLATE = "{} Generate an image based on this description."


def load_liquid(
    checkpoint: str,
    tokenizer: ChameleonVQGAN,
    first_code: int,
    geometry: dict,
    model_type: str = "gemma",
    image_size: int = 512,
    prefix_len: int = 128,
    cfg_scale: float = 7.0,
    dtype: str = "auto",
    device: str = "auto",
) -> HuggingFaceTarget:
    """first_code: the token id of code 0; geometry: fields of the model type's config. Raises CheckpointError."""
    config = AutoConfig.for_model(model_type, **geometry)
    model, text, made_of = load_pretrained(causal_family(config), config, checkpoint, dtype, device)
    begin, image, nothing = (id_of(text, name) for name in (BEGIN, IMAGE, NOTHING))
    prompts = PromptIds(text, prefix_len, [begin], [image], fixed([begin, nothing, image]), TEMPLATE)
    ids = torch.arange(first_code, first_code + len(tokenizer.codebook), device=model.device)
    with torch.no_grad():
        embed = model.model.embed_tokens(ids)  # the module and not its rows: Gemma scales what it looks up
    vocabulary = ImageVocabulary(embed, model.lm_head.weight[first_code : first_code + len(ids)].clone())
    side = image_size // tokenizer.downsampling
    return HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, (side, side), cfg_scale, made_of)


def causal_family(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class of transformers that runs a config as a causal language model."""
    return AutoModelForCausalLM._model_mapping[type(config)]
