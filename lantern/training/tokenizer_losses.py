"""Losses of the tokenizer: local power spectra, which penalise a wrong amount of texture at any frequency and direction
but not its phase, and a patch discriminator (Isola et al. 2017, arXiv:1611.07004) with the weighting of Esser et al.
2021 (arXiv:2012.09841)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

WINDOW = 16  # pixels: the lines of a pattern of 8 pixels are resolved
NEIGHBOURS = 3  # windows, down and across, whose powers are averaged
STRIDE = 8  # pixels, of the discriminator and of a token
POWER_FLOOR = (4 / 255) ** 2  # of images in [0, 1]: about the sensor noise of the scenes


def local_spectra(images: Tensor) -> Tensor:
    """Powers [B, F, h, w] at the F frequencies (of three channels) in half-overlapping Hann windows of images
    [B, 3, H, W], without their means; white noise has its variance at every frequency."""
    taper = torch.hann_window(WINDOW, device=images.device)
    window = torch.outer(taper, taper)
    patches = images.float().unfold(2, WINDOW, WINDOW // 2).unfold(3, WINDOW, WINDOW // 2)
    centred = patches - patches.mean((-2, -1), keepdim=True)
    spectra = torch.fft.rfft2(centred * (window / window.square().mean().sqrt()), norm="ortho")
    powers = rearrange(spectra.abs().square(), "b c h w y x -> b (c y x) h w")
    count = min(NEIGHBOURS, powers.shape[-1])
    return F.avg_pool2d(powers, count, (count + 1) // 2)


def texture_loss(made: Tensor, real: Tensor) -> Tensor:
    """Mean distance of the logarithms of local spectra, images [B, 3, H, W] in [0, 1]: ratios of powers weight faint
    and strong textures alike. The power of a whole octave would let the decoder put it at one frequency, as lines of
    its sampling grid."""
    ours, theirs = (local_spectra(images) + POWER_FLOOR for images in (made, real))
    return (ours / theirs).log().abs().mean()


class PatchDiscriminator(nn.Module):
    """Classifies patches of 22 pixels, STRIDE apart, as real or reconstructed: [B, 3, H, W] -> scores [B, 1, h, w],
    positive for real."""

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


def from_offset(images: Tensor, offset: Tensor) -> Tensor:
    """Images [B, 3, H, W] without their first `offset` (two below STRIDE) rows and columns, STRIDE smaller: patches
    that always began where tokens do would tell reconstructions by their place."""
    (top, left), (height, width) = offset.tolist(), (side - STRIDE for side in images.shape[2:])
    return images[:, :, top : top + height, left : left + width]


def hinge_loss(real: Tensor, made: Tensor) -> Tensor:
    """The discriminator's loss, from its scores of real and reconstructed images."""
    return F.relu(1 - real).mean() + F.relu(1 + made).mean()


def balanced(loss: Tensor, reference: Tensor, images: Tensor) -> Tensor:
    """`loss`, scaled so that its gradient at the images has the norm of that of `reference`."""
    ours, theirs = (torch.autograd.grad(part, images, retain_graph=True)[0].norm() for part in (loss, reference))
    return loss * (theirs / (ours + 1e-8)).clamp(max=1e4)
