"""LK's adaptive hybrid (2602.23881): lambda KL(p, q) + (1 - lambda) (1 - alpha), with lambda = exp(-eta alpha) per site
and no gradient through lambda. Where laws are far apart KL leads, whose gradient does not vanish; else the overlap."""

import torch
from torch import Tensor

from lantern.sampling import entropy
from lantern.training.losses.sites import Sites


class AdaptiveHybrid:
    """eta: how soon the overlap takes over; the paper's is 3."""

    def __init__(self, eta: float) -> None:
        self.eta = eta

    def __call__(self, sites: Sites) -> Tensor:
        share = torch.exp(-self.eta * sites.alpha.detach())
        divergence = -entropy(sites.p) - torch.linalg.vecdot(sites.p, sites.log_q)
        return share * divergence + (1 - share) * (1 - sites.alpha)
