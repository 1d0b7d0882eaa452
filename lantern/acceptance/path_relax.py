"""PathRelax (2606.10492), by its code: paths of one tree lend each other mass. A token x is accepted with
min(1, (p(x) + δ m) / q(x)), m the mean of p(y) over the tokens y at its depth on other paths; otherwise a token is
drawn from norm(max(p - q, 0)). Published with verification=longest_path (+method=pathrelax)."""

from copy import copy
from typing import Self

from torch import Tensor

from lantern.acceptance.pooled import Lent, apart, judge_by_lent_mass
from lantern.errors import check_least
from lantern.types import DraftTree, Site


class PathRelax:
    """Each node of a depth counts as one path. If all paths part at the root, this is the paper's rule."""

    name = "path_relax"
    verification = "ratio"  # by default
    _lent: Lent | None = None

    def __init__(self, delta: float) -> None:
        """delta >= 0; 0 is exact."""
        check_least("acceptance", 0, delta=delta)
        self.delta, self.lossless = delta, delta == 0
        self.parameters = {"delta": delta}

    def of_round(self, tree: DraftTree, features: Tensor) -> Self:
        are_level = apart(tree) & (tree.depths[:, None] == tree.depths[..., None])
        bound = copy(self)
        bound._lent = Lent(tree.tokens, self.delta * are_level / are_level.sum(-1, keepdim=True).clamp(min=1))
        return bound

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return judge_by_lent_mass(self.name, self._lent, False, p, q, x, site)
