"""Chameleon models (2405.09818) that generate images: Anole (2407.06135) and Lumina-mGPT (2408.02657). Drafting and
verification are restricted to the 8,192 image codes of their vocabulary; transformers' own mask of image logits is not
used."""

from functools import partial
from pathlib import Path

from torch import Tensor
from transformers import ChameleonConfig, ChameleonForConditionalGeneration

from lantern.models.build import build_model
from lantern.models.chameleon.vqgan import ChameleonVQGAN
from lantern.models.checkpoints import read_weights
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import check_image_size
from lantern.runtime.hardware import resolve_device

FIRST_CODE = 4  # token ids 4 … 8195 are image codes
BEGIN, SEPARATOR, IMAGE, ROW_END, SIZES = 0, 8710, 8197, 8803, 8804
HEAD_NORMS = r"self_attn\.[qk]_norm\."  # Lumina-mGPT stores one row for all heads, transformers has one for each
CODES_PER_SIZE = 2  # a unit of Lumina's size tokens is 32 pixels, a code 16


def load_vqgan(
    checkpoint: str, file: str, device: str = "auto", setting: str = "model.tokenizer.checkpoint", **sizes: object
) -> ChameleonVQGAN:
    """The image tokenizer of Meta's vqgan.ckpt, in evaluation mode; sizes: see ChameleonVQGAN. Raises
    CheckpointError."""
    remedy = f"give {setting}=<Meta's vqgan.ckpt>"
    build, torch_device = partial(ChameleonVQGAN, **sizes), resolve_device(device)
    model, _ = build_model(build, checkpoint, file, setting, remedy, torch_device, read=_without_losses)
    return model.eval().requires_grad_(False)


def _without_losses(path: Path) -> dict[str, Tensor]:
    return {name: value for name, value in read_weights(path).items() if not name.startswith("loss.")}


def load_anole(
    checkpoint: str, tokenizer: ChameleonVQGAN, image_size: int = 512, prefix_len: int = 128,
    geometry: dict | None = None, cfg_scale: float = 3.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """Anole: an image is its codes alone. geometry: fields of ChameleonConfig. Raises CheckpointError."""
    check_image_size(image_size, tokenizer.downsampling)
    side = image_size // tokenizer.downsampling
    prompts = partial(
        PromptIds,
        length=prefix_len,
        before=[BEGIN],
        after=[SEPARATOR, IMAGE],
        unconditional=fixed([BEGIN, IMAGE]),
    )
    return _load(checkpoint, tokenizer, (side, side), prompts, None, geometry, cfg_scale, dtype, device)


def load_lumina(
    checkpoint: str, tokenizer: ChameleonVQGAN, image_size: int = 768, prefix_len: int = 192,
    geometry: dict | None = None, cfg_scale: float = 3.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """Lumina-mGPT: height and width tokens precede the codes, a newline token follows each row. Raises
    CheckpointError."""
    check_image_size(image_size, CODES_PER_SIZE * tokenizer.downsampling)
    side = image_size // tokenizer.downsampling
    start = [IMAGE, SIZES + side // CODES_PER_SIZE, SIZES + side // CODES_PER_SIZE]
    prompts = partial(
        PromptIds,
        length=prefix_len,
        before=[BEGIN],
        after=[SEPARATOR, *start],
        unconditional=fixed(start),
        template=f"Generate an image of {image_size}x{image_size} according to the following prompt:\n{{}}",
    )
    return _load(checkpoint, tokenizer, (side, side), prompts, ROW_END, geometry, cfg_scale, dtype, device)


def _load(
    checkpoint: str, tokenizer: ChameleonVQGAN, grid: tuple[int, int], prompts: partial, row_end: int | None,
    geometry: dict | None, cfg_scale: float, dtype: str, device: str,
) -> HuggingFaceTarget:  # fmt: skip
    config = ChameleonConfig(**{"vocabulary_map": {}, **(geometry or {})})
    model, text, made_of = load_pretrained(
        ChameleonForConditionalGeneration, config, checkpoint, dtype, device, per_head=HEAD_NORMS,
        ignored=("model.vqmodel.",),  # an encoder without a decoder: unused
    )  # fmt: skip
    del model.model.vqmodel
    embeddings = model.model.embed_tokens
    codes = slice(FIRST_CODE, FIRST_CODE + len(tokenizer.codebook))
    vocabulary = ImageVocabulary(
        embed=embeddings.weight[codes],
        head=model.lm_head.weight[codes].clone(),
        row_end=None if row_end is None else embeddings.weight[row_end],
    )
    return HuggingFaceTarget(model.model, vocabulary, prompts(text), tokenizer, grid, cfg_scale, made_of)
