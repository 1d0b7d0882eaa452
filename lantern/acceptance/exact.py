"""The exact rule of speculative sampling (2211.17192, algorithm 1): p~ = p, the output law is the target's."""

from typing import ClassVar

from torch import Tensor

from lantern.acceptance.relaxed import judge_by_relaxed_law


class Exact:
    """Lossless: what every relaxed rule is compared with."""

    name = "exact"
    verification = "shared_noise"  # by default
    lossless = True
    parameters: ClassVar[dict[str, float]] = {}
    judge = judge_by_relaxed_law

    def relax(self, p: Tensor, x: Tensor) -> Tensor:
        return p
