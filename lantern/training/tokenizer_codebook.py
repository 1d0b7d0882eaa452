"""Learns the unit-norm codebook: k-means on encoder outputs, then exponential moving averages of the vectors assigned
to each code (van den Oord et al. 2017, arXiv:1711.00937, appendix A.1); unused codes are reset to data."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

LLOYD_STEPS = 8


class ClusteredCodebook(nn.Module):
    """The statistics behind a codebook [V, C]; `weight` is written in place."""

    def __init__(self, size: int, dim: int, decay: float = 0.99, revive_below: float = 0.1, pool: int = 32768) -> None:
        """A code with less than `revive_below` of the mean usage is reset; k-means starts from `pool` encoder
        outputs."""
        super().__init__()
        self.decay, self.revive_below = decay, revive_below
        self.register_buffer("usage", torch.ones(size))
        self.register_buffer("sums", torch.zeros(size, dim))
        self.register_buffer("pool", torch.zeros(pool, dim))
        self.register_buffer("pooled", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def collect(self, z: Tensor) -> None:
        """Stores encoder outputs [n, C]; the latest `pool` are kept."""
        slots = (self.pooled + torch.arange(len(z), device=z.device)) % len(self.pool)
        self.pool[slots] = z
        self.pooled += len(z)

    @torch.no_grad()
    def start(self, weight: Tensor, generator: Generator) -> None:
        """Writes the centres of spherical k-means on the pool into `weight` [V, C]."""
        known = self.pool[: int(self.pooled.clamp(max=len(self.pool)))]
        size = len(weight)
        pick = torch.randperm(len(known), generator=generator).repeat(-(-size // len(known)))[:size].to(known.device)
        codes = known[pick]
        with torch.autocast(known.device.type, enabled=False):  # as Quantizer.nearest
            for _ in range(LLOYD_STEPS):
                sums, counts = _assigned(known, (known @ codes.T).argmax(-1), size)
                codes = torch.where(counts[:, None] > 0, F.normalize(sums, dim=-1), known[pick])
        weight.copy_(codes)
        self.usage.fill_(1)
        self.sums.copy_(codes)

    @torch.no_grad()
    def update(self, weight: Tensor, z: Tensor, tokens: Tensor, generator: Generator, revive: bool) -> Tensor:
        """One step of moving averages for z [n, C] and its tokens [n]; usage is relative to its mean.

        Returns the mask [V] of reset codes.
        """
        size = len(weight)
        sums, counts = _assigned(z, tokens, size)
        self.usage.lerp_(counts * size / len(z), 1 - self.decay)
        self.sums.lerp_(sums * size / len(z), 1 - self.decay)
        dead = (self.usage < self.revive_below) & revive
        fresh = z[torch.randint(len(z), (size,), generator=generator).to(z.device)]
        self.sums.copy_(torch.where(dead[:, None], fresh, self.sums))
        self.usage.masked_fill_(dead, 1)
        weight.copy_(F.normalize(self.sums, dim=-1))
        return dead


def _assigned(z: Tensor, tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Sum [V, C] and number [V] of the vectors z [n, C] assigned to each code."""
    sums = torch.zeros(size, z.shape[1], device=z.device).index_add_(0, tokens, z)
    return sums, torch.bincount(tokens, minlength=size).float()
