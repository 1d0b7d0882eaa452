"""Shared noise for rules with a committed law r of their own, ours: the token at a position is argmax(log r + G). r
follows from q, so that drafting must keep it, and from nothing that the noise of its own position decides."""

from torch import Tensor

from lantern.acceptance.committed import CommittedLaw, committed_laws
from lantern.acceptance.exact import Exact
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import DraftTree, Verdict
from lantern.verification.shared_noise import SharedNoise, SharedProposals


class KeptProposals:
    """As under shared noise, with q kept for r."""

    keeps_law = True

    def __init__(self, noise: Noise) -> None:
        shared = SharedProposals(noise)
        self.drawn, self.chosen = shared.drawn, shared.chosen

    def coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        """Raises LanternError: nothing shows that r may follow from a window's laws."""
        return self.anew(laws)

    def anew(self, laws: Tensor) -> Tensor:
        raise LanternError(
            "a rule with a committed law of its own has no window to judge under shared noise; use verification=ratio"
        )


class SharedLaw:
    name = "shared_noise"
    proposals = KeptProposals

    def __call__(self, tree: DraftTree, probs: Tensor, rule: CommittedLaw, noise: Noise) -> Verdict:
        """probs p [B, N, V]. Raises LanternError if children were drafted and q was not kept: a tree that is pruned by
        its noise, such as EAGLE-2's, would let r follow that noise."""
        q = tree.draft_probs
        if q is None and tree.width != 0 and bool((tree.parents >= 0).any()):
            raise LanternError(
                f"acceptance={rule.name} with verification=shared_noise needs the draft law, which this tree does not "
                "keep; use a static tree or verification=ratio"
            )
        laws = probs if q is None else committed_laws(tree, probs, q, rule)
        return SharedNoise()(tree, laws, Exact(), noise)
