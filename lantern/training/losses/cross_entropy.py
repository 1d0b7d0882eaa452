"""Cross-entropy against the target's whole law, as EAGLE distils it (2401.15077)."""

import torch
from torch import Tensor

from lantern.training.losses.sites import Sites


class CrossEntropy:
    """-sum_x p(x) log q(x)."""

    def __call__(self, sites: Sites) -> Tensor:
        return -torch.linalg.vecdot(sites.p, sites.log_q)
