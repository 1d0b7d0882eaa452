"""Agreement under shared noise, by which lossless decoding uses a drafter (unpublished): the label is the target's pick
argmax(log p + G), the prediction softmax((log q + G) / tau) under the same G. As tau falls it becomes q's own pick."""

from torch import Tensor

from lantern.noise import gumbel_argmax
from lantern.training.losses.sites import Sites


class Race:
    """Cross-entropy of the pick; tau: the temperature of the prediction."""

    def __init__(self, tau: float) -> None:
        self.tau = tau

    def __call__(self, sites: Sites) -> Tensor:
        weights = sites.noise()
        pick = gumbel_argmax(sites.p, weights)[..., None]
        scores = (sites.log_q + weights.log()) / self.tau
        return scores.logsumexp(-1) - scores.gather(-1, pick)[..., 0]
