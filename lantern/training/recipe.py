"""How a drafter is trained on a batch: one recipe for each yaml in conf/recipe."""

from dataclasses import dataclass

from lantern.training.chains import Objective
from lantern.training.losses.sites import SiteLoss
from lantern.training.unroll import Unroll


@dataclass(frozen=True)
class Recipe:
    """A loss at each site, their sum over chains, and the passes that reach the sites."""

    loss: SiteLoss
    objective: Objective
    depth: int  # passes
    feature_weight: float  # of SmoothL1 between the drafter's features and the target's
    feature_noise: float  # half-width of the uniform noise on the target's features that the drafter reads
    site_share: float = 1.0  # of the sites whose laws a step compares, drawn anew at each step: the head's cost
    unroll: Unroll | None = None  # None: that of the drafter's kind
