"""Families that transformers has: Emu3-Gen (2409.18869), Janus-Pro (2501.17811) and Liquid (2412.04332). Models like
Liquid need only a yaml: the body's class follows from model_type."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Emu3Config,
    Emu3ForConditionalGeneration,
    JanusConfig,
    JanusForConditionalGeneration,
)
from transformers.models.emu3.modeling_emu3 import Emu3VQVAE
from transformers.models.janus.modeling_janus import JanusVQVAE

from lantern.errors import LanternError
from lantern.models.chameleon import ChameleonVQGAN
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of, text_ids
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import check_image_size

# the text tokenizers' names of begin, image begin and others
EMU3_NAMES = "<|extra_203|>", "<|image start|>", "<|image token|>", "<|extra_200|>", "<|visual token 000000|>"
JANUS_NAMES = "<｜begin▁of▁sentence｜>", "<begin_of_image>", "<｜▁pad▁｜>"
LIQUID_NAMES = "<bos>", "<boi>"
LIQUID_UNCONDITIONAL = "<unconditional>"  # of which a tokenizer may make one token or several
JANUS_TEMPLATE = "<|User|>: {}\n\n<|Assistant|>:"
LIQUID_TEMPLATE = "{} Generate an image based on this description."
NEGATIVE = (
    "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst quality, "
    "low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
)


class Emu3Images(nn.Module):
    """The VQ decoder of an Emu3 model as an image tokenizer."""

    def __init__(self, vqmodel: Emu3VQVAE, grid: tuple[int, int]) -> None:
        super().__init__()
        self.vqmodel, self.grid = vqmodel, grid

    @property
    def codebook(self) -> Tensor:  # [V, C]
        return self.vqmodel.quantize.embedding.weight.float()

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        return ((self.vqmodel.decode(tokens.unflatten(1, self.grid)).float() + 1) / 2).clamp(0, 1)


class JanusImages(nn.Module):
    """The VQ decoder of a Janus model as an image tokenizer; codes are looked up as unit vectors."""

    def __init__(self, vqmodel: JanusVQVAE) -> None:
        super().__init__()
        self.vqmodel = vqmodel

    @property
    def codebook(self) -> Tensor:  # [V, C]
        return F.normalize(self.vqmodel.quantize.embedding.weight.float(), dim=-1)

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        return ((self.vqmodel.decode(tokens).float() + 1) / 2).clamp(0, 1)


def load_emu3(
    checkpoint: str, geometry: dict, image_size: int = 720, prefix_len: int = 192,
    quality: str = " masterpiece, film grained, best quality.", negative: str = NEGATIVE, cfg_scale: float = 3.0,
    dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """geometry: text_config and vq_config of Emu3Config; quality: appended to every prompt. The unconditional prompt is
    the negative one, which must fit into prefix_len tokens."""
    config = Emu3Config(**{"vocabulary_map": {}, **geometry})
    downsampling = 2 ** (len(config.vq_config.channel_multiplier) - 1)
    check_image_size(image_size, downsampling)
    model, text, made_of = load_pretrained(Emu3ForConditionalGeneration, config, checkpoint, dtype, device)
    side = image_size // downsampling
    size, negative_ids = (text_ids(text, words) for words in (f"{side}*{side}", negative)) if text else ([], [])
    begin, image, codes_begin, row_end, first = (id_of(text, name) for name in EMU3_NAMES)
    after = [image, *size, codes_begin]
    unconditional = [begin, *negative_ids, *after]
    if len(unconditional) > prefix_len:
        raise LanternError(
            f"model.negative takes {len(unconditional)} tokens with those around it, more than "
            f"model.prefix_len={prefix_len}; give model.prefix_len={len(unconditional)} or a shorter model.negative"
        )
    prompts = PromptIds(text, prefix_len, [begin], after, fixed(unconditional), template="{}" + quality)
    embeddings, images = model.model.text_model.embed_tokens, Emu3Images(model.model.vqmodel, (side, side))
    codes = slice(first, first + config.vq_config.codebook_size)
    vocabulary = ImageVocabulary(
        embed=embeddings.weight[codes], head=model.lm_head.weight[codes].clone(), row_end=embeddings.weight[row_end]
    )
    return HuggingFaceTarget(model.model.text_model, vocabulary, prompts, images, (side, side), cfg_scale, made_of)


def load_janus(
    checkpoint: str, geometry: dict, prefix_len: int = 128, cfg_scale: float = 5.0, dtype: str = "auto",
    device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """geometry: text_config, vision_config and vq_config of JanusConfig."""
    config = JanusConfig(**geometry)
    ignored = ("lm_head.", "model.vision_model.", "model.aligner.")  # for image inputs
    whole, text, made_of = load_pretrained(
        JanusForConditionalGeneration, config, checkpoint, dtype, device, ignored=ignored
    )
    model, head = whole.model, whole.model.generation_head
    del model.vision_model, model.aligner
    begin, image, pad = (id_of(text, name) for name in JANUS_NAMES)

    def unconditional(ids: list[int]) -> list[int]:  # pads are seen, as in training
        return [begin, *[pad] * (len(ids) - 2), image]

    prompts = PromptIds(text, prefix_len, [begin], [image], unconditional, JANUS_TEMPLATE)
    with torch.no_grad():
        embed = model.generation_aligner(model.generation_embeddings.weight)
    hidden = nn.Sequential(head.proj_out, head.activation_fn)
    vocabulary = ImageVocabulary(embed, head.vision_head.weight, head.vision_head.bias, hidden)
    side = config.vq_config.num_patches
    images = JanusImages(model.vqmodel)
    return HuggingFaceTarget(model.language_model, vocabulary, prompts, images, (side, side), cfg_scale, made_of)


def load_liquid(
    checkpoint: str, tokenizer: ChameleonVQGAN, first_code: int, geometry: dict, model_type: str = "gemma",
    image_size: int = 512, prefix_len: int = 128, cfg_scale: float = 7.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """first_code: the token id of code 0; geometry: fields of the model type's config."""
    check_image_size(image_size, tokenizer.downsampling)
    config = AutoConfig.for_model(model_type, **geometry)
    family = AutoModelForCausalLM._model_mapping[type(config)]
    model, text, made_of = load_pretrained(family, config, checkpoint, dtype, device)
    begin, image = (id_of(text, name) for name in LIQUID_NAMES)
    nothing = text_ids(text, LIQUID_UNCONDITIONAL) if text else []
    prompts = PromptIds(text, prefix_len, [begin], [image], fixed([begin, *nothing, image]), LIQUID_TEMPLATE)
    ids = torch.arange(first_code, first_code + len(tokenizer.codebook), device=model.device)
    with torch.no_grad():
        embed = model.model.embed_tokens(ids)  # the module, not its weight: Gemma scales its embeddings
    vocabulary = ImageVocabulary(embed, model.lm_head.weight[first_code : first_code + len(ids)].clone())
    side = image_size // tokenizer.downsampling
    return HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, (side, side), cfg_scale, made_of)
