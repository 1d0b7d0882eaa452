"""Reconstruction quality of a tokenizer: PSNR, dots of its grid, and code usage."""

import torch
import torch.nn.functional as F
from torch import Tensor

TOKEN = 8  # pixels, of a side


def psnr(made: Tensor, real: Tensor) -> Tensor:
    """Decibels [B] of images [B, 3, H, W] in [0, 1]."""
    return -10 * (made - real).square().flatten(1).mean(1).log10()


def detail_by_place(images: Tensor) -> Tensor:
    """Mean squared Laplacian [B, 8, 8] of grey images [B, 3, H, W] at each pixel of a token: patterns of the grid."""
    grey = F.pad(images.float().mean(1, keepdim=True), (1, 1, 1, 1), mode="reflect")[:, 0]
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    detail = (4 * grey[:, 1:-1, 1:-1] - around).square()
    return detail.unfold(1, TOKEN, TOKEN).unfold(2, TOKEN, TOKEN).mean((1, 2))


class ReconstructionMeter:
    """Accumulates statistics of originals and reconstructions, batch by batch."""

    def __init__(self, codebook_size: int) -> None:
        self.codebook_size = codebook_size
        self.psnr: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.details: list[Tensor] = []  # [2, 8, 8]: sums over made and real images

    @torch.no_grad()
    def update(self, made: Tensor, real: Tensor, tokens: Tensor) -> None:
        """made, real [B, 3, H, W] in [0, 1]; tokens [B, L]."""
        made, real = made.float().cpu(), real.float().cpu()
        self.psnr.append(psnr(made, real))
        self.tokens.append(tokens.unique().cpu())
        self.details.append(torch.stack([detail_by_place(images).sum(0) for images in (made, real)]))

    def summary(self) -> dict[str, float]:
        """psnr in decibels; grid/unevenness: the largest over the smallest detail of the places within a token, and
        that of the originals; codes_used as a share."""
        made, real = (places.max() / places.min() for places in torch.stack(self.details).sum(0))
        values = {"psnr": float(torch.cat(self.psnr).mean())}
        values |= {"grid/unevenness": float(made), "grid/unevenness_originals": float(real)}
        return values | {"codes_used": len(torch.cat(self.tokens).unique()) / self.codebook_size}
