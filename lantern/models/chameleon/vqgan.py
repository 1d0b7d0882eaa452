"""Meta's Chameleon VQGAN (2405.09818), which Anole, Lumina-mGPT and Liquid share: encoder, raw codebook, decoder.
Parameter names and arithmetic are those of the released vqgan.ckpt; widths and depths are arguments."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.models.llamagen.tokenizer import AttentionBlock, Downsample, ResBlock, Upsample
from lantern.models.token_grid import check_sides, square

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
