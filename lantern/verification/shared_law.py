"""Shared noise for rules with a committed law r of their own (2408.07978's coupling, with r for the target's law): the
token at a position is argmax(log r + G). r depends on q, which drafting keeps, and not on the noise of its position."""

from torch import Tensor

from lantern.acceptance.committed import committed_laws
from lantern.acceptance.exact import Exact
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Verdict
from lantern.verification.shared_noise import GumbelScores, SharedNoise


class LawKeepingProposals(GumbelScores):
    """Keeps q, from which r is computed. Refuses windows: r has not been shown to be valid for a window's laws."""

    needs_draft_law = True

    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        return self.redraw(laws)

    def redraw(self, laws: Tensor) -> Tensor:
        raise LanternError(
            "a rule with a committed law of its own has no window to judge under shared noise; use another rule, "
            "drafter=eagle with a static tree, or verification=ratio above temperature 0"
        )


class SharedLaw:
    """Implements lantern.types.Verification for CommittedLaws."""

    name = "shared_noise"
    head_s = 0.0
    proposals = LawKeepingProposals
    abilities = SharedNoise.abilities

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        q = tree.draft_probs
        if q is None and tree.width != 0 and bool((tree.parents >= 0).any()):
            raise LanternError(
                f"acceptance={rule.name} with verification=shared_noise needs the draft law, which this tree does not "
                "keep; use a static tree, or verification=ratio above temperature 0"
            )
        laws = probs if q is None else committed_laws(tree, probs, q, rule)
        return SharedNoise()(tree, laws, Exact(), noise)
