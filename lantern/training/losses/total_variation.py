"""The rejection probability 1 - alpha, which is the total variation between p and q."""

from torch import Tensor

from lantern.training.losses.sites import Sites


class TotalVariation:
    """1 - alpha."""

    def __call__(self, sites: Sites) -> Tensor:
        return 1 - sites.alpha
