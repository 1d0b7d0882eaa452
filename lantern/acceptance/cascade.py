"""CASCADE's interchangeable siblings (2605.07230; only its abstract was read): where the target's states at two drafts
of one parent nearly agree, either may stand for the other, so that a draft is judged by their pooled mass. Ours:
agreement is a cosine, and the pooled mass moves to the judged token as in LANTERN. The paper's second property, paths
whose states meet again further down, and its drafter training are left out."""

import torch.nn.functional as F
from torch import Tensor

from lantern.acceptance.pooled import Pooling, apart
from lantern.errors import LanternError
from lantern.types import DraftTree


class Cascade(Pooling):
    """Judged by verifications that ask a rule for each child, such as ratio."""

    name, moves = "cascade", True

    def __init__(self, agreement: float) -> None:
        """agreement: the least cosine between the features of interchangeable nodes, those of both guidance rows; above
        1 the rule is exact."""
        if not agreement > -1:
            raise LanternError(f"acceptance.agreement={agreement} is a cosine that all states have; give above -1")
        self.agreement, self.lossless = agreement, agreement > 1
        self.parameters = {"agreement": agreement}

    def shares(self, tree: DraftTree, features: Tensor) -> Tensor:
        states = F.normalize(features.transpose(1, 2).flatten(2).float(), dim=-1)  # [B, N, R F]
        are_siblings = apart(tree) & (tree.parents[:, None] == tree.parents[..., None])
        return are_siblings & (states @ states.transpose(1, 2) >= self.agreement)
