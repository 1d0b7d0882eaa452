"""MoVQGAN (ai-forever, after 2209.09002), the image tokenizer of Lumina-mGPT 2.0: a VQGAN with attention at the lowest
resolution, whose decoder looks at the codes in every norm."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.models.chameleon import ChameleonVQGAN, read_vqgan
from lantern.models.checkpoints import load_released

KEPT_PREFIXES = "encoder.", "decoder.", "quantize.embedding.", "quant_conv.", "post_quant_conv."  # beside losses


class SpatialNorm(nn.Module):
    """A norm whose gain and shift at each place follow the code there."""

    codes: Tensor  # [B, C, h, w] of the pass

    def __init__(self, norm: nn.GroupNorm, code_dim: int) -> None:
        super().__init__()
        self.norm_layer = norm
        self.conv_y, self.conv_b = (nn.Conv2d(code_dim, norm.num_channels, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:  # [B, D, H, W] -> [B, D, H, W]
        codes = F.interpolate(self.codes, x.shape[-2:], mode="nearest")
        return self.norm_layer(x) * self.conv_y(codes) + self.conv_b(codes)


class MoVQGAN(ChameleonVQGAN):
    """Images in [0, 1] to tokens and back. By default of the size 270M."""

    def __init__(
        self, channels: int = 256, multipliers: Sequence[int] = (1, 2, 2, 4), num_res_blocks: int = 2,
        z_channels: int = 4, codebook_size: int = 16384, code_dim: int = 4,
    ) -> None:  # fmt: skip
        super().__init__(channels, multipliers, num_res_blocks, z_channels, codebook_size, code_dim, attends=True)
        for owner in list(self.decoder.modules()):
            for name, norm in list(owner.named_children()):
                if isinstance(norm, nn.GroupNorm):
                    setattr(owner, name, SpatialNorm(norm, code_dim))

    def render(self, codes: Tensor) -> Tensor:  # [B, h, w, C] -> [B, 3, H, W]
        for norm in self.decoder.modules():
            if isinstance(norm, SpatialNorm):
                norm.codes = rearrange(codes, "b h w c -> b c h w")
        return super().render(codes)


def load_movqgan(
    checkpoint: str, file: str, device: str = "auto", setting: str = "model.tokenizer.checkpoint", **sizes: object
) -> MoVQGAN:
    """ai-forever's file, in evaluation mode; sizes: MoVQGAN's."""
    build, remedy = partial(MoVQGAN, **sizes), f"give {setting}=<MoVQGAN's movqgan_270M.ckpt>"
    return load_released(build, checkpoint, file, setting, remedy, device, read_movqgan)


def read_movqgan(path: Path) -> dict[str, Tensor]:
    """As read_vqgan, without running averages."""
    return {name: value for name, value in read_vqgan(path).items() if name.startswith(KEPT_PREFIXES)}
