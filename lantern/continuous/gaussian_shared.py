"""Shared noise for continuous tokens (ours): under the noise of its position the target's own token is a
function of the prefix, and a draft is accepted within a tolerance of it. With tolerance 0 the tokens are plain
decoding's.

The accepted draft is committed, not the target's token, because the nodes after it were conditioned on the draft. So
every committed token lies within the tolerance of the target's own token given exactly the committed prefix."""

from torch import Tensor

from lantern.continuous.latent_sampling import GaussianNoise, LatentProposals, TokenHead, verdict_on_chain
from lantern.errors import LanternError, check_least
from lantern.types import Abilities, AcceptanceRule, DraftTree, Site, Target, Verdict


class Tolerance:
    """Accepts a draft near the target's own token: the continuous twin of LANTERN's neighbourhood (2410.03355) and of
    the tolerance of speech decoders (VADUSA, 2410.21951). eps: largest root mean squared difference over channels.
    Latents have a standard deviation of 1 in each channel, so eps = 1e-3 allows only rounding, and eps = 1 accepts any
    draft that is no worse than a guess."""

    name, verification = "tolerance", "gaussian_shared"

    def __init__(self, eps: float) -> None:
        check_least("acceptance", 0, eps=eps)  # 0.001 accepts what differs by rounding
        self.eps, self.lossless, self.parameters = eps, eps == 0, {"eps": eps}

    def accepts(self, drafted: Tensor, picks: Tensor) -> Tensor:
        """[..., C] each -> [...] whether the draft is near enough."""
        return (drafted - picks).square().mean(-1).sqrt() <= self.eps

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        raise LanternError("acceptance=tolerance judges latents by their distance; use verification=gaussian_shared")


class GaussianShared:
    """Implements lantern.types.Verification for Tolerance and chains; the exact rule has tolerance 0."""

    name = "gaussian_shared"
    proposals = LatentProposals
    abilities = Abilities(tosses_coins=False)

    def __init__(self, target: Target) -> None:
        self.head = TokenHead(target)

    @property
    def head_s(self) -> float:
        return self.head.seconds

    def plain(self) -> "GaussianShared":
        """The verification of plain decoding."""
        return GaussianShared(self.head.target)

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: GaussianNoise) -> Verdict:
        picks = self.head(probs, noise.normals(probs.shape[1])).tokens
        follows = tolerance_of(rule).accepts(tree.tokens.roll(-1, 1), picks)  # the draft behind a node
        return verdict_on_chain(tree, follows, picks, picks)


def tolerance_of(rule: AcceptanceRule) -> Tolerance:
    """The rule itself, or that of tolerance 0 for an exact one."""
    if isinstance(rule, Tolerance):
        return rule
    if not rule.lossless:
        raise LanternError(f"acceptance={rule.name} judges codes, the tokens are latents; use acceptance=tolerance")
    return Tolerance(0.0)
