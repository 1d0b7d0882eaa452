"""Chameleon models (2405.09818) that make images: Anole (2407.06135) and Lumina-mGPT (2408.02657), their VQGAN, and
Lumina-mGPT 2.0, which has another vocabulary and MoVQGAN's codes. Drafting and verification are restricted to image
codes; transformers' own mask of image logits is not used."""

import re
from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor
from transformers import ChameleonForConditionalGeneration

from lantern.models.checkpoints import load_released, read_weights
from lantern.models.hf.pretrained import IMAGE_INPUTS, Pretrained, load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.token_grid import check_sides, grid_of


class ChameleonVQGAN(VQTokenizer):
    """Images in [0, 1] to tokens and back. Unlike LlamaGen's, codes are not normalised, and the only attention is at
    the lowest resolution, in the middle."""

    def __init__(
        self, channels: int = 128, multipliers: Sequence[int] = (1, 1, 2, 2, 4), num_res_blocks: int = 2,
        z_channels: int = 256, codebook_size: int = 8192, code_dim: int = 256, attends: bool = False,
    ) -> None:  # fmt: skip
        sizes = codebook_size, code_dim, z_channels, num_res_blocks
        super().__init__(channels, multipliers, multipliers, *sizes, attends=attends)

    @property
    def codebook(self) -> Tensor:  # [V, C]
        return self.quantize.embedding.weight

    def encode(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, L]
        """Tokens of images in [0, 1], in raster order; the sides must be multiples of `downsampling`."""
        check_sides(images, self.downsampling)
        z = rearrange(self.quant_conv(self.encoder(images * 2 - 1)), "b c h w -> b (h w) c").float()
        return torch.cdist(z, self.codebook.float()[None], compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)


FIRST_CODE = 4  # token ids 4 … 8195 are image codes
BEGIN, SEPARATOR, IMAGE, ROW_END, SIZES = 0, 8710, 8197, 8803, 8804
HEAD_NORMS = r"self_attn\.[qk]_norm\."  # Lumina-mGPT stores one row for all heads, transformers has one for each
UP = re.compile(r"decoder\.up\.(\d+)\.")
RENAMED = {
    "encoder.down.": "encoder.conv_blocks.",
    ".block.": ".res.",
    ".mid.block_1.": ".mid.0.",
    ".mid.attn_1.": ".mid.1.",
    ".mid.block_2.": ".mid.2.",
}
CODES_PER_SIZE = 2  # a unit of Lumina's size tokens is 32 pixels, a code 16
LUMINA2_CODES_PER_SIZE = 4  # whose code is 8
LUMINA2_NAMES = "<racm3:break>", "<reserved08799>"  # of the image's begin, and of the end of its rows
LUMINA2_SIZES = 8800  # number of the reserved token of size 0


def load_vqgan(
    checkpoint: str, file: str, device: str = "auto", setting: str = "model.tokenizer.checkpoint",
    weights: str | None = None, **sizes: object,
) -> ChameleonVQGAN:  # fmt: skip
    """The tokenizer of Meta's vqgan.ckpt, to evaluate. weights: as part of read_weights; sizes: ChameleonVQGAN's."""
    build, read = partial(ChameleonVQGAN, **sizes), partial(read_vqgan, part=weights)
    return load_released(build, checkpoint, file, setting, f"give {setting}=<Meta's vqgan.ckpt>", device, read)


def read_vqgan(path: Path, part: str | None = None) -> dict[str, Tensor]:
    """The state dict of Meta's file without its losses, under the names of LlamaGen's tokenizer; `decoder.up` is
    numbered from the highest resolution, which LlamaGen's has last."""
    state = {name: value for name, value in read_weights(path, part).items() if not name.startswith("loss.")}
    levels = 1 + max((int(found[1]) for name in state if (found := UP.match(name))), default=0)

    def llamagen_name(name: str) -> str:
        name = UP.sub(lambda found: f"decoder.conv_blocks.{levels - 1 - int(found[1])}.", name)
        return reduce(lambda known, names: known.replace(*names), RENAMED.items(), name)

    return {llamagen_name(name): value for name, value in state.items()}


def load_anole(
    checkpoint: str, tokenizer: ChameleonVQGAN, image_size: int = 512, prefix_len: int = 128, cfg_scale: float = 3.0,
    dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """Anole: an image is its codes alone."""
    grid = grid_of(image_size, tokenizer.downsampling)
    model, text, made_of = _load(checkpoint, dtype, device)
    prompts = PromptIds(text, prefix_len, [BEGIN], [SEPARATOR, IMAGE], fixed([BEGIN, IMAGE]))
    vocabulary = ImageVocabulary.of_ids(model.model, model.lm_head, FIRST_CODE, len(tokenizer.codebook))
    return HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, grid, cfg_scale, made_of)


def load_lumina(
    checkpoint: str, tokenizer: ChameleonVQGAN, image_size: int = 768, prefix_len: int = 192, cfg_scale: float = 3.0,
    dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """Lumina-mGPT: height and width tokens precede the codes, a newline token follows each row."""
    units = grid_of(image_size, CODES_PER_SIZE * tokenizer.downsampling)
    model, text, made_of = _load(checkpoint, dtype, device)
    after = [IMAGE, *(SIZES + count for count in units)]
    prompts = PromptIds(text, prefix_len, [BEGIN], [SEPARATOR, *after], fixed(after), _template(image_size))
    vocabulary = ImageVocabulary.of_ids(model.model, model.lm_head, FIRST_CODE, len(tokenizer.codebook), ROW_END)
    grid = grid_of(image_size, tokenizer.downsampling)
    return HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, grid, cfg_scale, made_of)


def load_lumina2(
    checkpoint: str, tokenizer: ChameleonVQGAN, image_size: int = 768, first_code: int = 155000,
    separator: str = "<reserved08706>", prefix_len: int = 192, cfg_scale: float = 4.0, dtype: str = "auto",
    device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """Lumina-mGPT 2.0, in its predecessor's order of tokens. first_code: id of code 0; separator: behind the prompt."""
    units = grid_of(image_size, LUMINA2_CODES_PER_SIZE * tokenizer.downsampling)
    model, text, made_of = _load(checkpoint, dtype, device)
    sizes = (f"<reserved{LUMINA2_SIZES + count:05d}>" for count in units)
    image, row_end, end, *size = (id_of(text, name) for name in (*LUMINA2_NAMES, separator, *sizes))
    after, before = [image, *size], []
    if text:  # whose begin is its end where it has no other
        before = [text.eos_token_id if text.bos_token_id is None else text.bos_token_id]
    prompts = PromptIds(text, prefix_len, before, [end, *after], fixed(after), _template(image_size))
    vocabulary = ImageVocabulary.of_ids(model.model, model.lm_head, first_code, len(tokenizer.codebook), row_end)
    grid = grid_of(image_size, tokenizer.downsampling)
    return HuggingFaceTarget(model.model, vocabulary, prompts, tokenizer, grid, cfg_scale, made_of)


def _template(image_size: int) -> str:
    return f"Generate an image of {image_size}x{image_size} according to the following prompt:\n{{}}"


def _load(checkpoint: str, dtype: str, device: str) -> Pretrained:
    """Without transformers' image tokenizer, which is an encoder without a decoder."""
    family, ignored = ChameleonForConditionalGeneration, IMAGE_INPUTS["chameleon"]
    loaded = load_pretrained(family, checkpoint, dtype, device, per_head=HEAD_NORMS, ignored=ignored)
    del loaded.model.model.vqmodel
    return loaded
