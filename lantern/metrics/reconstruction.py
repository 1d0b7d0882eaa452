"""Reconstruction quality of a tokenizer: PSNR, texture, code usage, and the critic's answers on its images."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from lantern.data.captions import parse_caption
from lantern.errors import LanternError
from lantern.metrics.fidelity import frechet_distance
from lantern.models.critic import IGNORED, Critic, labels_of


def psnr(made: Tensor, real: Tensor) -> Tensor:
    """Decibels [B] of images [B, 3, H, W] in [0, 1]."""
    return -10 * (made - real).square().flatten(1).mean(1).log10()


def high_octave_power(images: Tensor) -> Tensor:
    """Power [B] of images [B, 3, H, W] at radial frequencies between half the Nyquist frequency and all of it.

    A Hann window keeps the jump across the border out of the spectrum.
    """
    height, width = images.shape[-2:]
    window = torch.hann_window(height)[:, None] * torch.hann_window(width)
    centred = images - images.mean((-2, -1), keepdim=True)
    spectrum = torch.fft.fft2(centred * window.to(images.device)).abs().square()
    radius = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)[None]).to(images.device)
    return (spectrum * ((radius >= 0.25) & (radius <= 0.5))).sum((1, 2, 3))


class ReconstructionMeter:
    """Accumulates statistics of originals and reconstructions, batch by batch."""

    def __init__(self, codebook_size: int, critic: Critic | None) -> None:
        """critic: None leaves its figures out."""
        self.codebook_size, self.critic = codebook_size, critic
        self.psnr: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.power: dict[str, list[Tensor]] = defaultdict(list)  # by texture, [2]: made, real
        self.answers: dict[str, list[Tensor]] = defaultdict(list)  # by attribute, [asked, 2] right or not: made, real
        self.features: list[Tensor] = []  # [2, B, 64]: made, real

    @torch.no_grad()
    def update(self, made: Tensor, real: Tensor, tokens: Tensor, captions: Sequence[str]) -> None:
        """made, real [B, 3, H, W] in [0, 1]; tokens [B, L]; captions: of embedded scenes, or of a user's images,
        which the critic is not asked about."""
        made, real = made.float().cpu(), real.float().cpu()
        self.psnr.append(psnr(made, real))
        self.tokens.append(tokens.unique().cpu())
        powers = torch.stack([high_octave_power(made), high_octave_power(real)], dim=1)
        textures = [_texture(caption) for caption in captions]
        for texture, power in zip(textures, powers, strict=True):
            self.power[texture or "other"].append(power)
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
        """psnr in decibels; high_octave/<texture> and codes_used as shares; the critic's shares of right answers on
        reconstructions and originals, and the Fréchet distance between its features of the two."""
        values = {"psnr": float(torch.cat(self.psnr).mean())}
        for texture, powers in sorted(self.power.items()):
            made, real = torch.stack(powers).sum(0)
            values[f"high_octave/{texture}"] = float(made / real)
        values["codes_used"] = len(torch.cat(self.tokens).unique()) / self.codebook_size
        for name, answers in self.answers.items():
            made, real = torch.cat(answers).double().mean(0)
            values |= {f"critic/{name}": float(made), f"critic/{name}_originals": float(real)}
        if self.features:
            made, real = torch.cat(self.features, dim=1)
            values["critic/frechet"] = frechet_distance(made, real)
        return values


def _texture(caption: str) -> str | None:
    try:
        return parse_caption(caption).texture
    except LanternError:
        return None
