"""Acceptance at stated rates, whatever was drafted: the times and tokens per step of a tree or a window before there is
a drafter for it. Engines call it a synthetic acceptance rate. The images have no meaning."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lantern.errors import LanternError, is_number
from lantern.types import Site


class Synthetic:
    """A child at depth d is accepted with probability rates[d - 1]; deeper levels use the last rate. Siblings are
    judged once those before them are rejected, so one of two children is accepted with probability 1 - (1 - rate)^2."""

    name = "synthetic"
    verification = "ratio"  # by default
    lossless = False

    def __init__(self, rates: Sequence[float]) -> None:
        """rates: by depth, each in [0, 1]."""
        is_list = isinstance(rates, Sequence) and not isinstance(rates, str) and len(rates) > 0
        if not is_list or not all(is_number(rate) and 0 <= rate <= 1 for rate in rates):
            raise LanternError(f"acceptance.rates={rates} are chances by depth; give a list of numbers in [0, 1]")
        self.rates = tuple(float(rate) for rate in rates)
        self.parameters: dict[str, Any] = {"rates": " ".join(f"{rate:g}" for rate in self.rates)}

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        rates = torch.tensor(self.rates, dtype=p.dtype, device=p.device)
        return rates[(site.depth - 1).clamp(min=0, max=len(rates) - 1)], p
