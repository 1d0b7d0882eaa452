"""Liquid (2412.04332): a causal language model whose vocabulary is extended by the codes of Chameleon's VQGAN. Similar
models need only a yaml: the body's class follows from model_type."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from lantern.models.chameleon import ChameleonVQGAN
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of, text_ids
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import check_image_size

BEGIN, IMAGE, NOTHING = "<bos>", "<boi>", "<unconditional>"
TEMPLATE = "{} Generate an image based on this description."


def load_liquid(
    checkpoint: str, tokenizer: ChameleonVQGAN, first_code: int, geometry: dict, model_type: str = "gemma",
    image_size: int = 512, prefix_len: int = 128, cfg_scale: float = 7.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """first_code: the token id of code 0; geometry: fields of the model type's config. Raises CheckpointError."""
    check_image_size(image_size, tokenizer.downsampling)
    config = AutoConfig.for_model(model_type, **geometry)
    model, text, made_of = load_pretrained(causal_family(config), config, checkpoint, dtype, device)
    begin, image = (id_of(text, name) for name in (BEGIN, IMAGE))
    nothing = text_ids(text, NOTHING) if text else []  # of which a tokenizer may make one token or several
    prompts = PromptIds(text, prefix_len, [begin], [image], fixed([begin, *nothing, image]), TEMPLATE)
    ids = torch.arange(first_code, first_code + len(tokenizer.codebook), device=model.device)
    with torch.no_grad():
        embed = model.model.embed_tokens(ids)  # the module, not its weight: Gemma scales its embeddings
    vocabulary = ImageVocabulary(embed, model.lm_head.weight[first_code : first_code + len(ids)].clone())
    side = image_size // tokenizer.downsampling
    return HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, (side, side), cfg_scale, made_of)


def causal_family(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The transformers class for a config as a causal language model."""
    return AutoModelForCausalLM._model_mapping[type(config)]
