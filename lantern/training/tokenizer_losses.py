"""Losses of the tokenizer: local band powers, which penalise a wrong amount of texture but not its phase, and a patch
discriminator (Isola et al. 2017, arXiv:1611.07004) with the weighting of Esser et al. 2021 (arXiv:2012.09841)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WINDOW, STRIDE = 16, 4  # pixels over which a band's power is averaged
POWER_FLOOR = (1 / 255) ** 2  # of images in [0, 1]: power below it is invisible


def blur(images: Tensor) -> Tensor:
    """Separable binomial low-pass of five taps, reflecting at the border: [B, 3, H, W] -> the same."""
    taps = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], device=images.device, dtype=images.dtype) / 16
    kernel = taps.expand(images.shape[1], 1, 1, 5)
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    rows = F.conv2d(padded, kernel, groups=images.shape[1])
    return F.conv2d(rows, kernel.transpose(2, 3), groups=images.shape[1])


def band_powers(images: Tensor, levels: int) -> list[Tensor]:
    """Local power of each octave, finest first: of images [B, 3, H, W], maps [B, 3, h, w] (a Laplacian pyramid)."""
    powers = []
    for _ in range(levels):
        smooth = blur(images)
        window = min(WINDOW, images.shape[-1])
        powers.append(F.avg_pool2d((images - smooth).square(), window, STRIDE))
        images = smooth[..., ::2, ::2]
    return powers


def texture_loss(made: Tensor, real: Tensor, levels: int = 3) -> Tensor:
    """Mean distance of the logarithms of local band powers, images [B, 3, H, W] in [0, 1]: ratios of
    powers weight faint and strong textures alike."""
    pairs = zip(band_powers(made, levels), band_powers(real, levels), strict=True)
    ratios = [((a + POWER_FLOOR) / (b + POWER_FLOOR)).log().abs().mean() for a, b in pairs]
    return torch.stack(ratios).mean()


class PatchDiscriminator(nn.Module):
    """Classifies patches of 22 pixels as real or reconstructed: [B, 3, H, W] -> scores [B, 1, h, w], positive for
    real."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [3, width, 2 * width, 4 * width]
        self.stages = nn.ModuleList(nn.Conv2d(a, b, 4, stride=2, padding=1) for a, b in pairwise(widths))
        self.score = nn.Conv2d(widths[-1], 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        hidden = images * 2 - 1
        for stage in self.stages:
            hidden = F.leaky_relu(stage(hidden), 0.2)
        return self.score(hidden).float()


def hinge_loss(real: Tensor, made: Tensor) -> Tensor:
    """The discriminator's loss, from its scores of real and reconstructed images."""
    return F.relu(1 - real).mean() + F.relu(1 + made).mean()


def balanced(loss: Tensor, reference: Tensor, images: Tensor) -> Tensor:
    """`loss`, scaled so that its gradient at the images has the norm of that of `reference`."""
    ours, theirs = (torch.autograd.grad(part, images, retain_graph=True)[0].norm() for part in (loss, reference))
    return loss * (theirs / (ours + 1e-8)).clamp(max=1e4)
