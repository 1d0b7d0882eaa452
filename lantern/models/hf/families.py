"""Families that transformers has: Emu3-Gen (2409.18869), Janus-Pro (2501.17811), Liquid (2412.04332), SimpleAR
(2504.11455) and GLM-Image. Models like Liquid need only a yaml: the body's class follows from its config.json."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from lantern.errors import explaining
from lantern.models.chameleon import ChameleonVQGAN
from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.layers import weight_of
from lantern.models.hf.pretrained import IMAGE_INPUTS, load_pretrained
from lantern.models.hf.prompt_format import PromptIds, chat_template, fixed, id_of, text_ids
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import grid_of

# the text tokenizers' names of begin, image begin and others
EMU3_NAMES = "<|extra_203|>", "<|image start|>", "<|image token|>", "<|extra_200|>", "<|visual token 000000|>"
JANUS_NAMES = "<｜begin▁of▁sentence｜>", "<begin_of_image>", "<｜▁pad▁｜>"
SIMPLEAR_NAMES = "<|t2i|>", "<|soi|>"
SIMPLEAR_NEGATIVE = (
    "An image of aerial view, overexposed, low quality, deformation, a poor composition, bad hands, bad teeth, "
    "bad eyes, bad limbs, distortion"
)
FSQ_LEVELS = (8, 8, 8, 5, 5, 5)  # of Cosmos' DV8x16x16 tokenizer: 64,000 codes
GLM_IMAGE_PARTS = "vision_language_encoder", "processor"  # of the released folder, which diffusers reads
COSMOS_PIXELS = 16  # of a code's side
GLM_IMAGE_PIXELS = 32  # of a code's side: 16 of the tokens that the image is made of, at half its size
LIQUID_NAMES = "<bos>", "<boi>"
LIQUID_UNCONDITIONAL = "<unconditional>"  # of which a tokenizer may make one token or several
JANUS_TEMPLATE = "<|User|>: {}\n\n<|Assistant|>:"
LIQUID_TEMPLATE = "{} Generate an image based on this description."
SIMPLEAR_TEMPLATE = "A highly realistic image of {}"
NEGATIVE = (
    "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst quality, "
    "low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
)


class DecodedImages(nn.Module):
    """A model's own image decoder as an image tokenizer."""

    def __init__(self, decoder: nn.Module, codebook: Tensor, decode: Callable[[Tensor], Tensor]) -> None:
        """codebook [V, C]; decode: tokens [B, L] -> images [B, 3, H, W] in [-1, 1], by the decoder."""
        super().__init__()
        self.decoder, self.codebook, self._decode = decoder, codebook.detach().float(), decode

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        return ((self._decode(tokens).float() + 1) / 2).clamp(0, 1)


def load_emu3(
    checkpoint: str, image_size: int = 720, prefix_len: int = 192,
    quality: str = " masterpiece, film grained, best quality.", negative: str = NEGATIVE, cfg_scale: float = 3.0,
    dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """quality: appended to every prompt. The negative prompt is the unconditional one; it must fit into prefix_len."""
    model, text, made_of = load_pretrained(transformers.Emu3ForConditionalGeneration, checkpoint, dtype, device)
    codes = model.config.vq_config
    grid = grid_of(image_size, 2 ** (len(codes.channel_multiplier) - 1))
    size, negative_ids = (text_ids(text, words) for words in (f"{grid[0]}*{grid[1]}", negative)) if text else ([], [])
    begin, image, codes_begin, row_end, first = (id_of(text, name) for name in EMU3_NAMES)
    after = [image, *size, codes_begin]
    unconditional = [begin, *negative_ids, *after]
    prompts = PromptIds(text, prefix_len, [begin], after, fixed(unconditional), template="{}" + quality)
    body = model.model.text_model
    vocabulary = ImageVocabulary.of_ids(body, model.lm_head, first, codes.codebook_size, row_end)
    images, codebook = model.model.vqmodel, model.model.vqmodel.quantize.embedding.weight
    tokenizer = DecodedImages(images, codebook, lambda tokens: images.decode(tokens.unflatten(1, grid)))
    return HuggingFaceTarget(body, vocabulary, prompts, tokenizer, grid, cfg_scale, made_of)


def load_janus(
    checkpoint: str, prefix_len: int = 128, cfg_scale: float = 5.0, dtype: str = "auto", device: str = "auto"
) -> HuggingFaceTarget:
    family, ignored = transformers.JanusForConditionalGeneration, IMAGE_INPUTS["janus"]
    whole, text, made_of = load_pretrained(family, checkpoint, dtype, device, ignored=ignored)
    model = whole.model
    del model.vision_model, model.aligner
    begin, image, pad = (id_of(text, name) for name in JANUS_NAMES)

    def unconditional(ids: list[int]) -> list[int]:  # pads are seen, as in training
        return [begin, *[pad] * (len(ids) - 2), image]

    prompts = PromptIds(text, prefix_len, [begin], [image], unconditional, JANUS_TEMPLATE)
    side, vocabulary = whole.config.vq_config.num_patches, janus_vocabulary(whole)
    codebook = F.normalize(model.vqmodel.quantize.embedding.weight.float(), dim=-1)  # looked up as unit vectors
    images = DecodedImages(model.vqmodel, codebook, model.vqmodel.decode)
    return HuggingFaceTarget(model.language_model, vocabulary, prompts, images, (side, side), cfg_scale, made_of)


def janus_vocabulary(whole: transformers.JanusForConditionalGeneration) -> ImageVocabulary:
    model, head = whole.model, whole.model.generation_head
    with torch.no_grad():
        embed = model.generation_aligner(model.generation_embeddings.weight)
    hidden = nn.Sequential(head.proj_out, head.activation_fn)
    return ImageVocabulary(embed, weight_of(head.vision_head).detach(), head.vision_head.bias.detach(), hidden)


def load_liquid(
    checkpoint: str, tokenizer: ChameleonVQGAN, first_code: int, image_size: int = 512, prefix_len: int = 128,
    cfg_scale: float = 7.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """first_code: the token id of code 0."""
    grid = grid_of(image_size, tokenizer.downsampling)
    model, text, made_of = load_pretrained(transformers.AutoModelForCausalLM, checkpoint, dtype, device)
    begin, image = (id_of(text, name) for name in LIQUID_NAMES)
    nothing = text_ids(text, LIQUID_UNCONDITIONAL) if text else []
    prompts = PromptIds(text, prefix_len, [begin], [image], fixed([begin, *nothing, image]), LIQUID_TEMPLATE)
    ids = torch.arange(first_code, first_code + len(tokenizer.codebook), device=model.device)
    with explaining(f"the body of {type(model).__name__} does not fit", "write a Target for it"), torch.no_grad():
        embed = model.model.embed_tokens(ids)  # the module, not its weight: Gemma scales its embeddings
        vocabulary = ImageVocabulary(embed, weight_of(model.lm_head)[first_code : first_code + len(ids)].clone())
        target = HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, grid, cfg_scale, made_of)
        if not embed.is_meta:
            target.check(model, ids, "")  # some bodies scale or bound their logits
    return target


def cosmos_images(path: str, grid: tuple[int, int], codebook: Tensor) -> DecodedImages:
    """Cosmos' discrete video tokenizer for single images, by its TorchScript decoder, which holds operations on tensors
    and no Python; codes are points of its grid."""
    remedy = "give Cosmos' decoder.jit, or null to see codes as colours"
    with explaining(f"model.decoder={path} is no TorchScript file", remedy):
        decoder = torch.jit.load(Path(path).expanduser(), map_location=codebook.device).eval()
    return DecodedImages(decoder, codebook, lambda tokens: decoder(tokens.unflatten(1, grid)[:, None])[:, :, 0])


def fsq_codebook(levels: Sequence[int]) -> Tensor:
    """[V, C] finite scalar quantisation (2309.15505): (i - L // 2) / (L // 2) of L levels, first dimension fastest."""
    places = torch.cartesian_prod(*(torch.arange(count) for count in reversed(levels))).flip(1).float()
    half = torch.tensor(levels) // 2
    return (places - half) / half


def load_simplear(
    checkpoint: str, decoder: str | None = None, image_size: int = 1024, levels: Sequence[int] = FSQ_LEVELS,
    prefix_len: int = 192, negative: str = SIMPLEAR_NEGATIVE, cfg_scale: float = 6.0, dtype: str = "auto",
    device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """SimpleAR: Qwen2 with the codes of Cosmos' tokenizer behind its words. decoder: Cosmos' decoder.jit, without which
    codes are shown as colours; levels: of its quantisation."""
    grid = grid_of(image_size, COSMOS_PIXELS)
    model, text, made_of = load_pretrained(transformers.Qwen2ForCausalLM, checkpoint, dtype, device)
    codebook = fsq_codebook(levels).to(model.device)
    first = len(text) if text else model.config.vocab_size - len(codebook)
    begin, image = (id_of(text, name) for name in SIMPLEAR_NAMES)
    unconditional = [begin, *(text_ids(text, negative) if text else []), image]
    prompts = PromptIds(text, prefix_len, [begin], [image], fixed(unconditional), SIMPLEAR_TEMPLATE)
    images = CodeColors(codebook, grid) if decoder is None else cosmos_images(decoder, grid, codebook)
    vocabulary = ImageVocabulary.of_ids(model.model, model.lm_head, first, len(codebook))
    return HuggingFaceTarget(model.model, vocabulary, prompts, images, grid, cfg_scale, made_of)


def load_glm_image(
    checkpoint: str, image_size: int | Sequence[int] = 1024, preview_side: int = 16, prefix_len: int = 512,
    cfg_scale: float = 1.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """The AR stage of GLM-Image. An image is a preview grid of preview_side^2 codes in its aspect ratio, and behind it
    the grid that the diffusion stage reads, shown as colours here; image_size: its side, or height and width. Only
    codes are drawn, as its layout asks; its head has other ids beside them."""
    grid = grid_of(image_size, GLM_IMAGE_PIXELS)
    ratio = (grid[0] / grid[1]) ** 0.5
    preview = max(1, int(ratio * preview_side)), max(1, int(preview_side / ratio))
    family, ignored = transformers.GlmImageForConditionalGeneration, IMAGE_INPUTS["glm_image"]
    model, text, made_of = load_pretrained(family, checkpoint, dtype, device, ignored=ignored, parts=GLM_IMAGE_PARTS)
    body = model.model.language_model
    codebook = F.normalize(model.model.vqmodel.quantize.embedding.weight.float(), dim=-1)
    del model.model.visual, model.model.vqmodel
    layout = "".join(f"{{0}}{rows} {columns}{{1}}" for rows, columns in (grid, preview)) + "{2}"
    after, template = [], "{}"
    if text:
        after = text_ids(text, layout.format(text.grid_bos_token, text.grid_eos_token, text.bos_token))
        template = chat_template(text)
    prompts = PromptIds(text, prefix_len, [], after, fixed(after), template)
    vocabulary = ImageVocabulary.of_ids(body, model.lm_head, 0, len(codebook))
    images = CodeColors(codebook, grid)
    return HuggingFaceTarget(body, vocabulary, prompts, images, grid, cfg_scale, made_of, preview=preview)
