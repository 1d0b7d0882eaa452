"""CASCADE's interchangeable siblings (2605.07230; only its abstract was read). If the target's states at two drafts of
one parent nearly agree, either may replace the other, so a draft is judged by their pooled mass. Ours: agreement is a
cosine, and the pooled mass moves to the judged token as in LANTERN. Left out: the paper's drafter training and its
second property, paths whose states meet again further down."""

from copy import copy
from typing import Self

import torch.nn.functional as F
from torch import Tensor

from lantern.acceptance.pooled import Lent, apart, judge_by_lent_mass
from lantern.errors import LanternError
from lantern.types import DraftTree, Site


class Cascade:
    """Judged by verifications that ask a rule for each child, such as ratio."""

    name = "cascade"
    verification = "ratio"  # by default
    _lent: Lent | None = None

    def __init__(self, agreement: float) -> None:
        """agreement: smallest cosine between interchangeable nodes' features, guidance rows joined; exact above 1."""
        if not agreement > -1:
            raise LanternError(f"acceptance.agreement={agreement} is a cosine that all states have; give above -1")
        self.agreement, self.lossless = agreement, agreement > 1 + 1e-5  # a cosine in float32 may exceed 1
        self.parameters = {"agreement": agreement}

    def of_round(self, tree: DraftTree, features: Tensor) -> Self:
        states = F.normalize(features.transpose(1, 2).flatten(2).float(), dim=-1)  # [B, N, R F]
        are_siblings = apart(tree) & (tree.parents[:, None] == tree.parents[..., None])
        bound = copy(self)
        bound._lent = Lent(tree.tokens, are_siblings & (states @ states.transpose(1, 2) >= self.agreement))
        return bound

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return judge_by_lent_mass(self.name, self._lent, True, p, q, x, site)
