"""Chameleon models (2405.09818) that make images: Anole (2407.06135) and Lumina-mGPT (2408.02657), and their VQGAN.
Drafting and verification are restricted to the 8,192 image codes of their vocabulary; transformers' own mask of image
logits is not used."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from transformers import ChameleonConfig, ChameleonForConditionalGeneration

from lantern.models.checkpoints import build_model, read_weights
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.llamagen.tokenizer import AttentionBlock, Downsample, ResBlock, Upsample
from lantern.models.token_grid import check_image_size, check_sides, square
from lantern.runtime.hardware import resolve_device

GROUPS = 32


class Level(nn.Module):
    """Residual blocks of one resolution, then down- or upsampling, if any."""

    def __init__(self, widths: Sequence[int], **resample: nn.Module) -> None:
        super().__init__()
        self.block = nn.ModuleList(ResBlock(a, b, GROUPS) for a, b in pairwise(widths))
        for name, layer in resample.items():
            self.add_module(name, layer)
        self.resample = tuple(resample)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block:
            x = block(x)
        for name in self.resample:
            x = getattr(self, name)(x)
        return x


class Middle(nn.Module):
    """The blocks at the lowest resolution, with this tokenizer's only attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block_1, self.block_2 = ResBlock(width, width, GROUPS), ResBlock(width, width, GROUPS)
        self.attn_1 = AttentionBlock(width, GROUPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.block_2(self.attn_1(self.block_1(x)))


class Encoder(nn.Module):
    """Images to latents, one level per multiplier, highest resolution first."""

    def __init__(self, channels: int, multipliers: Sequence[int], num_res_blocks: int, z_channels: int) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(3, channels, 3, padding=1)
        self.down, width = nn.ModuleList(), channels
        for level, multiplier in enumerate(multipliers):
            widths = [width] + [channels * multiplier] * num_res_blocks
            width = widths[-1]
            resample = {} if level == len(multipliers) - 1 else {"downsample": Downsample(width)}
            self.down.append(Level(widths, **resample))
        self.mid = Middle(width)
        self.norm_out = nn.GroupNorm(GROUPS, width, eps=1e-6)
        self.conv_out = nn.Conv2d(width, z_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, z_channels, h, w]
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(self.mid(x))))


class Decoder(nn.Module):
    """Latents to images. `up` is numbered by resolution like the encoder, so that its last level runs first."""

    def __init__(self, channels: int, multipliers: Sequence[int], num_res_blocks: int, z_channels: int) -> None:
        super().__init__()
        width = channels * multipliers[-1]
        self.conv_in = nn.Conv2d(z_channels, width, 3, padding=1)
        self.mid = Middle(width)
        levels = []
        for level, multiplier in reversed(list(enumerate(multipliers))):
            widths = [width] + [channels * multiplier] * (num_res_blocks + 1)
            width = widths[-1]
            levels.append(Level(widths, **({"upsample": Upsample(width)} if level else {})))
        self.up = nn.ModuleList(reversed(levels))
        self.norm_out = nn.GroupNorm(GROUPS, width, eps=1e-6)
        self.conv_out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:  # [B, z_channels, h, w] -> [B, 3, H, W]
        x = self.mid(self.conv_in(z))
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Quantizer(nn.Module):
    """The codebook, under the released parameter name."""

    def __init__(self, codebook_size: int, code_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codebook_size, code_dim)


class ChameleonVQGAN(nn.Module):
    """Images in [0, 1] to tokens and back; unlike LlamaGen's, the codes are not normalised."""

    def __init__(
        self, channels: int = 128, multipliers: Sequence[int] = (1, 1, 2, 2, 4), num_res_blocks: int = 2,
        z_channels: int = 256, codebook_size: int = 8192, code_dim: int = 256,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder = Encoder(channels, multipliers, num_res_blocks, z_channels)
        self.decoder = Decoder(channels, multipliers, num_res_blocks, z_channels)
        self.quantize = Quantizer(codebook_size, code_dim)
        self.quant_conv = nn.Conv2d(z_channels, code_dim, 1)
        self.post_quant_conv = nn.Conv2d(code_dim, z_channels, 1)
        self.downsampling = 2 ** (len(multipliers) - 1)

    @property
    def codebook(self) -> Tensor:  # [V, C]
        return self.quantize.embedding.weight

    def encode(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, L]
        """Tokens of images in [0, 1], in raster order; the sides must be multiples of `downsampling`."""
        check_sides(images, self.downsampling)
        z = rearrange(self.quant_conv(self.encoder(images * 2 - 1)), "b c h w -> b (h w) c").float()
        return torch.cdist(z, self.codebook.float()[None], compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)

    def render(self, codes: Tensor) -> Tensor:  # [B, h, w, C] -> [B, 3, H, W]
        """Images in [-1, 1], not clamped, of code vectors."""
        return self.decoder(self.post_quant_conv(rearrange(codes, "b h w c -> b c h w"))).float()

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        """Images in [0, 1] of a square grid of tokens."""
        codes = F.embedding(square(tokens), self.codebook)
        return ((self.render(codes) + 1) / 2).clamp(0, 1)


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
