"""A Jacobi window with side branches at uncertain positions: training-free, for devices with cheap nodes. See
branches.py."""

from torch import Tensor

from lantern.drafters.jacobi.branches import Branches
from lantern.drafters.jacobi.jacobi import Jacobi
from lantern.drafters.jacobi.window import KIND, PickingProposals, Redraw, Start
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import DraftTree, Proposals, Target, TreeLabel


class BranchingJacobi(Jacobi):
    """Implements lantern.types.Drafter, for shared noise."""

    def __init__(
        self, target: Target, length: int, branches: int, start: Start, redraw: Redraw, sampling: Sampling,
        name: str = "branching_jacobi",
    ) -> None:  # fmt: skip
        """length: of the window, in tokens; branches: nodes beside it. Raises LanternError for too many."""
        super().__init__(target, length, start, redraw, sampling, name)
        self._branches = Branches(length, branches, target.vocab_size, target.codebook.device)
        self.tree, self.num_nodes = TreeLabel(f"window_{length}+{branches}", KIND), length + 1 + branches

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        """Raises LanternError under ratio verification."""
        if not isinstance(proposals, PickingProposals):
            raise LanternError(
                f"drafter={self.name}: runners-up are no draws from a law; use verification=shared_noise and a rule "
                "without a committed law of its own"
            )
        if not self._branches.count:
            return super().draft(roots, tokens_left, proposals)
        self.window.guess(roots, proposals)
        return self._branches.tree(roots, tokens_left, *proposals.gumbel_topk(self.window.laws, self._branches.ranks))
