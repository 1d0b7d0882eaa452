"""Shared noise for continuous tokens (unpublished): under the noise of its position the target's own token is a
function of the prefix, and a draft is accepted within a tolerance of it. With tolerance 0 the tokens are plain
decoding's.

The accepted draft is committed, not the target's token: the nodes behind it were conditioned on the draft, so that
every committed token lies within the tolerance of the target's own given exactly what stands before it."""

from torch import Tensor

from lantern.continuous.latent_chains import LatentProposals, gaussian, verdict_on_chain
from lantern.continuous.token_head import TokenHead
from lantern.continuous.tolerance import Tolerance
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Target, Verdict


class GaussianShared:
    """Implements lantern.types.Verification for Tolerance and chains; the exact rule has tolerance 0."""

    name = "gaussian_shared"
    proposals = LatentProposals

    def __init__(self, target: Target) -> None:
        self.head = TokenHead(target)

    @property
    def head_s(self) -> float:
        return self.head.seconds

    def plain(self) -> "GaussianShared":
        return self

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        """probs: conditions [B, N, R D]. Raises LanternError for a rule of codes that relaxes."""
        picks = self.head(probs, gaussian(noise).normals(probs.shape[1])).tokens
        follows = tolerance_of(rule).accepts(tree.tokens.roll(-1, 1), picks)  # the draft behind a node
        return verdict_on_chain(tree, follows, picks, picks)


def tolerance_of(rule: AcceptanceRule) -> Tolerance:
    """The rule itself, or that of tolerance 0 for an exact one; LanternError for others."""
    if isinstance(rule, Tolerance):
        return rule
    if not rule.lossless:
        raise LanternError(
            f"verification=gaussian_shared judges latents by their distance, acceptance={rule.name} codes by their "
            "probability; use acceptance=tolerance"
        )
    return Tolerance(0.0)
