"""How a drafter is trained on a batch: one recipe for each yaml in conf/recipe."""

from collections.abc import Callable
from dataclasses import dataclass

from lantern.errors import check_least
from lantern.training.drafter.losses import Objective, SiteLoss
from lantern.training.drafter.unroll import Unroll

Layers = Callable[[int], tuple[int, ...]]  # indices of some of a target's layers, given their number


def low_middle_high(count: int) -> tuple[int, int, int]:
    """The layers of `count` whose inputs EAGLE-3 reads: 2, count / 2 and count - 3; closer together below 9 layers."""
    return min(2, count // 3), count // 2, max(count - 3, 2 * count // 3)


def late(count: int) -> tuple[int, int, int]:
    """The layers of `count` a third and two thirds up, and the last one."""
    return count // 3, 2 * count // 3, count - 1


@dataclass(frozen=True)
class Recipe:
    """A loss at each site, their sum over chains, the passes that reach the sites, and what the drafter reads."""

    loss: SiteLoss
    objective: Objective
    depth: int  # passes
    feature_weight: float  # of SmoothL1 between the drafter's features and the target's
    feature_noise: float  # half-width of the uniform noise on the target's features that the drafter reads
    unroll_from: float = 0.0  # share of the training up to which only one pass is made
    unroll: Unroll | None = None  # None: unroll
    layers: Layers | None = None  # target layers whose inputs the drafter reads; None: it reads features
    adds_layers: bool = False  # true: layers are added to the target's features; false: they replace them

    def __post_init__(self) -> None:
        check_least("recipe", 1, depth=self.depth)
        check_least("recipe", 0, feature_weight=self.feature_weight, feature_noise=self.feature_noise)
        check_least("recipe", 0, 1, unroll_from=self.unroll_from)
