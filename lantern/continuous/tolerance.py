"""Accepts a drafted latent near the target's own: the continuous twin of LANTERN's neighbourhood (2410.03355) and of
the tolerance of speech decoders (VADUSA, 2410.21951)."""

from math import isfinite

from torch import Tensor

from lantern.errors import LanternError
from lantern.types import Site


class Tolerance:
    """eps: the root of the mean squared difference of the channels, at most. Latents have a standard deviation of 1 in
    each, so that eps = 1e-3 is rounding and eps = 1 any draft that is no worse than a guess."""

    name, verification = "tolerance", "gaussian_shared"

    def __init__(self, eps: float) -> None:
        """Raises LanternError for an eps below 0."""
        if not isfinite(eps) or eps < 0:
            raise LanternError(f"acceptance.eps={eps}: give 0 or more; 0.001 accepts what differs by rounding")
        self.eps, self.lossless = eps, eps == 0

    @property
    def parameters(self) -> dict[str, float]:
        return {"eps": self.eps}

    def accepts(self, drafted: Tensor, picks: Tensor) -> Tensor:
        """[..., C] each -> [...] whether the draft is near enough."""
        return (drafted - picks).square().mean(-1).sqrt() <= self.eps

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """Raises LanternError: no probability is compared."""
        raise LanternError("acceptance=tolerance judges latents by their distance; use verification=gaussian_shared")
