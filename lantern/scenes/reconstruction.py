"""Reconstruction quality of a tokenizer: PSNR, texture, code usage, and the critic's answers on its images."""

from collections import defaultdict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.errors import LanternError
from lantern.metrics.distances import FrechetTo
from lantern.scenes.captions import parse_caption
from lantern.scenes.critic import IGNORED, Critic, labels_of

TOKEN = 8  # pixels, of a side
GRID_LINES = (1 / 8, 2 / 8, 3 / 8, 4 / 8)  # cycles per pixel, of a pattern with a period of 8 pixels


def psnr(made: Tensor, real: Tensor) -> Tensor:
    """Decibels [B] of images [B, 3, H, W] in [0, 1]."""
    return -10 * (made - real).square().flatten(1).mean(1).log10()


def spectrum(images: Tensor) -> Tensor:
    """Power [B, H, W] of images [B, 3, H, W] by frequency, summed over the channels, under a Hann window, which keeps
    the jump across the border out of the spectrum."""
    height, width = images.shape[-2:]
    window = torch.hann_window(height)[:, None] * torch.hann_window(width)
    centred = images - images.mean((-2, -1), keepdim=True)
    return torch.fft.fft2(centred * window.to(images.device)).abs().square().sum(1)


def high_octave_power(images: Tensor) -> Tensor:
    """Power [B] of images [B, 3, H, W] at radial frequencies between half the Nyquist frequency and all of it."""
    rows, columns = _frequencies(images)
    radius = torch.hypot(rows, columns)
    return (spectrum(images) * ((radius >= 0.25) & (radius <= 0.5))).sum((1, 2))


def grid_power(images: Tensor) -> Tensor:
    """Powers [B, 4] of images [B, 3, H, W] on the two axes at the multiples of 1/8 cycle per pixel, up to Nyquist's.
    Counts all within 1/16 of a line, because a pattern that changes from token to token spreads that far."""
    power, (rows, columns) = spectrum(images), _frequencies(images)
    near, far = torch.minimum(rows.abs(), columns.abs()), torch.maximum(rows.abs(), columns.abs())
    lines = [(near <= 1 / 16) & ((far - line).abs() <= 1 / 16) for line in GRID_LINES]
    return torch.stack([(power * line).sum((1, 2)) for line in lines], dim=-1)


def detail_by_place(images: Tensor) -> Tensor:
    """Mean squared Laplacian [B, 8, 8] of grey, of images [B, 3, H, W], at each place within a token of 8 pixels. Finds
    patterns of the tokens' grid that no spectrum shows."""
    grey = F.pad(images.float().mean(1, keepdim=True), (1, 1, 1, 1), mode="reflect")[:, 0]
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    detail = (4 * grey[:, 1:-1, 1:-1] - around).square()
    return detail.unfold(1, TOKEN, TOKEN).unfold(2, TOKEN, TOKEN).mean((1, 2))


def _frequencies(images: Tensor) -> tuple[Tensor, Tensor]:
    """Cycles per pixel [H, 1] and [1, W] of a spectrum's rows and columns."""
    height, width = images.shape[-2:]
    rows, columns = torch.fft.fftfreq(height), torch.fft.fftfreq(width)
    return rows[:, None].to(images.device), columns[None].to(images.device)


class ReconstructionMeter:
    """Accumulates statistics of originals and reconstructions, batch by batch."""

    def __init__(self, codebook_size: int, critic: Critic | None) -> None:
        """critic: None leaves its figures out."""
        self.codebook_size, self.critic = codebook_size, critic
        self.psnr: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.powers: dict[str, list[Tensor]] = defaultdict(list)  # [2, ...]: sums over made and real images, by name
        self.answers: dict[str, list[Tensor]] = defaultdict(list)  # by attribute, [asked, 2] right or not: made, real
        self.features: list[Tensor] = []  # [2, B, 64]: made, real

    @torch.no_grad()
    def update(self, made: Tensor, real: Tensor, tokens: Tensor, captions: Sequence[str]) -> None:
        """made, real [B, 3, H, W] in [0, 1]; tokens [B, L]; captions: of embedded scenes, or of a user's images,
        which the critic is not asked about."""
        made, real = made.float().cpu(), real.float().cpu()
        self.psnr.append(psnr(made, real))
        self.tokens.append(tokens.unique().cpu())
        for measure in (grid_power, detail_by_place):
            self.powers[measure.__name__].append(torch.stack([measure(made).sum(0), measure(real).sum(0)]))
        powers = torch.stack([high_octave_power(made), high_octave_power(real)], dim=1)
        textures = [_texture(caption) for caption in captions]
        for texture, power in zip(textures, powers, strict=True):
            self.powers[f"high_octave/{texture or 'other'}"].append(power)
        scenes = [index for index, texture in enumerate(textures) if texture]
        if self.critic is not None and scenes:
            self._ask(made[scenes], real[scenes], [captions[index] for index in scenes])

    def _ask(self, made: Tensor, real: Tensor, captions: list[str]) -> None:
        features = [self.critic.features(images) for images in (made, real)]
        self.features.append(torch.stack(features).double())
        for name, labels in labels_of(captions).items():
            named = torch.stack([self.critic.heads[name](f).argmax(-1) for f in features], dim=1)
            self.answers[name].append((named == labels[:, None])[labels != IGNORED])

    def summary(self) -> dict[str, float]:
        """psnr in decibels; grid/<cycles per pixel>, high_octave/<texture> and codes_used as shares; grid/unevenness:
        the largest over the smallest detail of the places within a token, and that of the originals; the critic's
        shares of right answers on reconstructions and originals, and the Fréchet distance between its features of
        the two."""
        sums = {name: torch.stack(powers).sum(0) for name, powers in sorted(self.powers.items())}
        made, real = sums.pop("grid_power")
        values = {"psnr": float(torch.cat(self.psnr).mean())}
        values |= {f"grid/{line}": ratio for line, ratio in zip(GRID_LINES, (made / real).tolist(), strict=True)}
        made, real = (places.max() / places.min() for places in sums.pop("detail_by_place"))
        values |= {"grid/unevenness": float(made), "grid/unevenness_originals": float(real)}
        values |= {name: float(made / real) for name, (made, real) in sums.items()}
        values["codes_used"] = len(torch.cat(self.tokens).unique()) / self.codebook_size
        for name, answers in self.answers.items():
            made, real = torch.cat(answers).double().mean(0)
            values |= {f"critic/{name}": float(made), f"critic/{name}_originals": float(real)}
        if self.features:
            made, real = torch.cat(self.features, dim=1)
            values["critic/frechet"] = FrechetTo(real)(made)
        return values


def _texture(caption: str) -> str | None:
    try:
        return parse_caption(caption).texture
    except LanternError:
        return None
