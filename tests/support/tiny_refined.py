"""An untrained refined window on the tiny target."""

from collections.abc import Sequence

import torch
from support.toy import DIM

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import feed_forward_dim
from lantern.sampling import Sampling

LENGTH, SHARE = 5, 0.6


def tiny_refined(
    target: LlamaGenTarget, sampling: Sampling, passes: int, length: int = LENGTH, branches: int = 0,
    layers: Sequence[int] = (), adds_layers: bool = False, num_layers: int = 1,
) -> RefinedJacobi:  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        own = {"layers": layers, "adds_layers": adds_layers, "num_layers": num_layers}
        network = EagleNetwork(DIM, 2, feed_forward_dim(DIM, 16), **own)
        if adds_layers:
            torch.nn.init.normal_(network.reads.fc.weight, std=0.1)
        network = network.to(target.embed_weight.dtype)
    return RefinedJacobi(network, target, sampling, length, passes, SHARE, branches, "tiny-drafter")
