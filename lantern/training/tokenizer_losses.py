"""Losses of the tokenizer: power spectra and the evenness of detail, which penalise a wrong amount of texture at any
frequency, direction or place within a token, but not its phase, and a patch discriminator (Isola et al. 2017,
arXiv:1611.07004) with the weighting of Esser et al. 2021 (arXiv:2012.09841)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.metrics.reconstruction import TOKEN, detail_by_place

LOCAL_WINDOW = 16  # pixels: a texture beside an object has windows of its own
NEIGHBOURS = 3  # windows, down and across, whose powers are averaged
BATCH_WINDOW = 32  # pixels: the lines of a pattern of 8 pixels are apart
BATCH_WEIGHT = 4  # of the batch's spectrum, beside the others
STRIDE = TOKEN  # of the discriminator
NOISE = (4 / 255) ** 2  # about the power of the scenes' sensor noise, of images in [0, 1]
ROUNDING = 1 / 255**2 / 12  # that of bytes


def texture_loss(made: Tensor, real: Tensor) -> Tensor:
    """Distances of powers' logarithms, images [B, 3, H, W] in [0, 1], so that faint and strong textures count alike:
    of the spectra around each place, of the batch's spectrum, and of the detail at each place within a token.

    Around a place the power of an original varies, and a decoder that cannot know it settles below the mean: the
    batch's spectrum asks for the mean. The power of a whole octave could be put at one frequency, as lines of the
    tokens' grid, and that of spectra at one place of every token, as dots.
    """
    local = _distance(_local_spectra(made), _local_spectra(real), NOISE)
    batch = _distance(_batch_spectrum(made), _batch_spectrum(real), ROUNDING)
    even = detail_by_place(real).mean((-2, -1), keepdim=True)
    return local + BATCH_WEIGHT * batch + _distance(detail_by_place(made), even, NOISE)


def _distance(made: Tensor, real: Tensor, floor: float) -> Tensor:
    return ((made + floor) / (real + floor)).log().abs().mean()


def _local_spectra(images: Tensor) -> Tensor:
    powers = rearrange(_window_spectra(images, LOCAL_WINDOW), "b c h w y x -> b (c y x) h w")
    count = min(NEIGHBOURS, powers.shape[-1])
    return F.avg_pool2d(powers, count, (count + 1) // 2)


def _batch_spectrum(images: Tensor) -> Tensor:
    return _window_spectra(images, min(BATCH_WINDOW, *images.shape[2:])).mean((0, 2, 3))


def _window_spectra(images: Tensor, side: int) -> Tensor:
    """Powers [B, 3, h, w, side, side / 2 + 1] by frequency in half-overlapping Hann windows of images [B, 3, H, W],
    without their means; white noise has its variance at every frequency."""
    taper = torch.hann_window(side, device=images.device)
    window = torch.outer(taper, taper)
    patches = images.float().unfold(2, side, side // 2).unfold(3, side, side // 2)
    centred = patches - patches.mean((-2, -1), keepdim=True)
    return torch.fft.rfft2(centred * (window / window.square().mean().sqrt()), norm="ortho").abs().square()


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
