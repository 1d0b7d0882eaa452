"""From guided logits to the law tokens are drawn from: temperature, top-k, top-p. Target and drafter share it."""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import torch
from torch import Tensor

from lantern.errors import LanternError, check_least, check_whole, is_number
from lantern.noise import GreedyNoise, Noise
from lantern.types import Drafter, Target

COLDEST, STRONGEST = 1e-4, 1e4  # lowest temperature above 0, largest |cfg_scale|: float32 logits overflow beyond


@dataclass(frozen=True)
class Sampling:
    """Sampling settings. temperature 0 is greedy decoding: the law stays that of temperature 1, the noise is zero.

    top_k 0 and top_p 1 keep every code. cfg_scale s guides as u + s (c - u), also below 1, where LlamaGen's code does
    not; 1 switches guidance off.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    cfg_scale: float = 2.0
    has_entropy: ClassVar[bool] = True  # whether law() gives the probabilities of codes

    def __post_init__(self) -> None:
        check_whole("sampling", 0, top_k=self.top_k)  # 0 keeps every code
        for name in ("temperature", "cfg_scale"):
            if not is_number(value := getattr(self, name)) or not isfinite(value):
                raise LanternError(f"sampling.{name}={value} is no finite number; give one")
        if self.temperature != 0 and self.temperature < COLDEST:  # logits would be infinite
            raise LanternError(f"sampling.temperature={self.temperature} is out of range; give 0 or {COLDEST} at least")
        check_least("sampling", -STRONGEST, STRONGEST, cfg_scale=self.cfg_scale)
        if not 0 < self.top_p <= 1:
            raise LanternError(f"sampling.top_p={self.top_p} is outside (0, 1]; use 1 to keep every code")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def noise(self, target: Target, drafter: Drafter, batch_size: int) -> Noise:
        """The streams of a batch of images, without noise in greedy decoding."""
        noise = GreedyNoise if self.is_greedy else Noise
        return noise(batch_size, target.vocab_size, drafter.depth, target.codebook.device, drafter.num_nodes)

    def law(self, logits: Tensor) -> Tensor:
        """[..., V] guided logits -> [..., V] probabilities, float32 at least."""
        return self.scores(logits).softmax(-1)

    def scores(self, logits: Tensor) -> Tensor:
        """[..., V] guided logits -> [..., V] log of the law up to a constant a row: all that drawing needs."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if not self.is_greedy and self.temperature != 1:
            logits = logits / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            threshold = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < threshold, -torch.inf)
        return nucleus(logits, self.top_p) if self.top_p < 1 else logits


def entropy(law: Tensor) -> Tensor:  # [..., V] -> [...]
    """Shannon entropy in nats."""
    return torch.special.entr(law).sum(-1)


def nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Keeps the smallest set of most likely codes whose mass reaches top_p (Holtzman et al., 1904.09751)."""
    ordered, order = scores.softmax(-1).sort(dim=-1)
    outside = ordered.cumsum(-1) <= 1 - top_p  # from the least likely on, so that of equal ones transformers' stay
    outside[..., -1:].zero_()  # keeps the best code even if top_p rounds to 0 in float32
    return scores.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), -torch.inf)
