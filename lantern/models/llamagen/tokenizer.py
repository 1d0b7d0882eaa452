"""LlamaGen's VQ tokenizer (Sun et al. 2024, arXiv:2406.06525): convolutional encoder, l2-normalised codebook, decoder.
Parameter names and arithmetic are those of the released VQ-16 and VQ-8 checkpoints; widths and depths are arguments."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.models.token_grid import check_sides, square


class ResBlock(nn.Module):
    """Two normalised 3x3 convolutions beside a shortcut."""

    def __init__(self, width_in: int, width_out: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, width_in, eps=1e-6)
        self.conv1 = nn.Conv2d(width_in, width_out, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, width_out, eps=1e-6)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1)
        self.nin_shortcut = nn.Conv2d(width_in, width_out, 1) if width_in != width_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:  # [B, width_in, H, W] -> [B, width_out, H, W]
        hidden = self.conv1(F.silu(self.norm1(x)))
        return self.nin_shortcut(x) + self.conv2(F.silu(self.norm2(hidden)))


class AttentionBlock(nn.Module):
    """Single-head self-attention over all positions, scaled by C^-0.5, pre-norm and residual."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, width, eps=1e-6)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> the same
        normed = self.norm(x)
        q, k, v = (rearrange(layer(normed), "b c h w -> b 1 (h w) c") for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj_out(rearrange(mixed, "b 1 (h w) c -> b c h w", h=x.shape[2]))


class Downsample(nn.Module):
    """Halves the sides; the padding is right and bottom only, as in the released weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Upsample(nn.Module):
    """Doubles the sides by repetition, then smooths."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Level(nn.Module):
    """Residual blocks of one resolution, each followed by attention if `attends`, then down- or upsampling, if any."""

    def __init__(self, widths: Sequence[int], groups: int, attends: bool, **resample: nn.Module) -> None:
        super().__init__()
        self.res = nn.ModuleList(ResBlock(a, b, groups) for a, b in pairwise(widths))
        self.attn = nn.ModuleList(AttentionBlock(width, groups) for width in widths[1:] if attends)
        for name, layer in resample.items():
            self.add_module(name, layer)
        self.resample = tuple(resample)

    def forward(self, x: Tensor) -> Tensor:
        for index, block in enumerate(self.res):
            x = block(x)
            if self.attn:
                x = self.attn[index](x)
        for name in self.resample:
            x = getattr(self, name)(x)
        return x


def middle(width: int, groups: int) -> nn.ModuleList:
    """The blocks at the lowest resolution: residual, attention, residual."""
    parts = ResBlock(width, width, groups), AttentionBlock(width, groups), ResBlock(width, width, groups)
    return nn.ModuleList(parts)


class Encoder(nn.Module):
    """Images to latents, one level per multiplier, highest resolution first. attends: with attention at the lowest."""

    def __init__(
        self, channels: int, multipliers: Sequence[int], num_res_blocks: int, z_channels: int, groups: int,
        attends: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv_in = nn.Conv2d(3, channels, 3, padding=1)
        self.conv_blocks = nn.ModuleList()
        width, last = channels, len(multipliers) - 1
        for level, multiplier in enumerate(multipliers):
            widths = [width] + [channels * multiplier] * num_res_blocks
            width = widths[-1]
            resample = {} if level == last else {"downsample": Downsample(width)}
            self.conv_blocks.append(Level(widths, groups, attends and level == last, **resample))
        self.mid = middle(width, groups)
        self.norm_out = nn.GroupNorm(groups, width, eps=1e-6)
        self.conv_out = nn.Conv2d(width, z_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, z_channels, h, w]
        x = self.conv_in(x)
        for block in (*self.conv_blocks, *self.mid):
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Decoder(nn.Module):
    """Latents to images, lowest resolution first, with a block per level more than the encoder; attends: as there."""

    def __init__(
        self, channels: int, multipliers: Sequence[int], num_res_blocks: int, z_channels: int, groups: int,
        attends: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        width, last = channels * multipliers[-1], len(multipliers) - 1
        self.conv_in = nn.Conv2d(z_channels, width, 3, padding=1)
        self.mid = middle(width, groups)
        self.conv_blocks = nn.ModuleList()
        for level, multiplier in enumerate(reversed(multipliers)):
            widths = [width] + [channels * multiplier] * (num_res_blocks + 1)
            width = widths[-1]
            resample = {} if level == last else {"upsample": Upsample(width)}
            self.conv_blocks.append(Level(widths, groups, attends and level == 0, **resample))
        self.norm_out = nn.GroupNorm(groups, width, eps=1e-6)
        self.conv_out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:  # [B, z_channels, h, w] -> [B, 3, H, W]
        x = self.conv_in(z)
        for block in (*self.mid, *self.conv_blocks):
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Quantizer(nn.Module):
    """Nearest code by cosine. Stored codes need not have unit norm; search and look-up normalise them."""

    def __init__(self, codebook_size: int, code_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codebook_size, code_dim)

    @property
    def codebook(self) -> Tensor:  # [V, C], unit rows
        return F.normalize(self.embedding.weight, dim=-1)

    def nearest(self, z: Tensor) -> Tensor:
        """z [..., C] of any norm -> indices [...] of the codes of largest cosine, in training's autocast as in use."""
        with torch.autocast(z.device.type, enabled=False):  # half precision would confuse near codes
            return (F.normalize(z, dim=-1) @ self.codebook.T).argmax(-1)


class VQTokenizer(nn.Module):
    """Images in [0, 1] to tokens and back; `channels` at full resolution, times a multiplier at each level below it."""

    def __init__(
        self, channels: int, encoder_multipliers: Sequence[int], decoder_multipliers: Sequence[int], codebook_size: int,
        code_dim: int, z_channels: int, num_res_blocks: int = 2, groups: int = 32, attends: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder = Encoder(channels, encoder_multipliers, num_res_blocks, z_channels, groups, attends)
        self.decoder = Decoder(channels, decoder_multipliers, num_res_blocks, z_channels, groups, attends)
        self.quantize = Quantizer(codebook_size, code_dim)
        self.quant_conv = nn.Conv2d(z_channels, code_dim, 1)
        self.post_quant_conv = nn.Conv2d(code_dim, z_channels, 1)
        self.downsampling = 2 ** (len(encoder_multipliers) - 1)

    @property
    def codebook(self) -> Tensor:
        """[V, C] codes as the decoder reads them, of unit norm."""
        return self.quantize.codebook

    def latents(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, h, w, C]
        """Unquantised unit vectors of images in [0, 1]; the sides must be multiples of `downsampling`."""
        check_sides(images, self.downsampling)
        z = self.quant_conv(self.encoder(images * 2 - 1))
        return F.normalize(rearrange(z.float(), "b c h w -> b h w c"), dim=-1)

    def render(self, codes: Tensor) -> Tensor:  # [B, h, w, C] -> [B, 3, H, W]
        """Images in [-1, 1], not clamped, of code vectors."""
        return self.decoder(self.post_quant_conv(rearrange(codes, "b h w c -> b c h w"))).float()

    def encode(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, L]
        """Tokens of images in [0, 1], in raster order."""
        return self.quantize.nearest(self.latents(images)).flatten(1)

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        """Images in [0, 1] of a square grid of tokens."""
        codes = F.embedding(square(tokens), self.codebook)
        return ((self.render(codes) + 1) / 2).clamp(0, 1)
