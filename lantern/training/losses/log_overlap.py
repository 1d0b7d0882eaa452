"""The LK loss (2602.23881): minus the logarithm of the acceptance probability alpha = sum_x min(p(x), q(x))."""

from torch import Tensor

from lantern.training.losses.sites import Sites

LEAST = 1e-6  # of alpha: the gradient of its logarithm stays finite


class LogOverlap:
    """-log alpha."""

    def __call__(self, sites: Sites) -> Tensor:
        return -sites.alpha.clamp(min=LEAST).log()
