"""Typical acceptance (Medusa, 2401.10774, section 2.3): a token is accepted if p(x) > min(ε, δ exp(-H(p))), whatever q.
Medusa takes a round's first token greedily; here it is sampled from p like any other."""

import torch
from torch import Tensor

from lantern.acceptance.committed import point_mass
from lantern.errors import LanternError
from lantern.sampling import entropy
from lantern.types import Site


class Typical:
    """Shared noise accepts the longest path whose tokens are typical or picked by the noise; of equally long paths it
    takes the first, Medusa the likeliest. Ratio accepts the first typical token."""

    name = "typical"
    verification = "shared_noise"  # by default: the rule is deterministic
    lossless = False

    def __init__(self, eps: float, delta: float) -> None:
        """eps and delta above 0."""
        for name, value in (("eps", eps), ("delta", delta)):
            if not value > 0:
                raise LanternError(f"acceptance.{name}={value} would accept any token; give a value above 0")
        self.eps, self.delta = eps, delta
        self.parameters = {"eps": eps, "delta": delta}

    def is_typical(self, p: Tensor, x: Tensor) -> Tensor:  # [B, V], [B] -> [B]
        return p.gather(1, x[:, None])[:, 0] > (self.delta * (-entropy(p)).exp()).clamp(max=self.eps)

    def relax(self, p: Tensor, x: Tensor) -> Tensor:
        return torch.where(self.is_typical(p, x)[:, None], point_mass(x, p), p)

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return self.is_typical(p, x).to(p.dtype), p
