"""A weighted sum of losses, as a yaml composes it."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lantern.training.losses.sites import SiteLoss, Sites


class Part(NamedTuple):
    """A loss and its weight."""

    weight: float
    loss: SiteLoss


class Blend:
    """Implements SiteLoss."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)

    def __call__(self, sites: Sites) -> Tensor:
        first, *others = (part.weight * part.loss(sites) for part in self.parts)
        return sum(others, first)
