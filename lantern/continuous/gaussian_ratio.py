"""Speculative sampling of continuous tokens. Given all noise before the last denoising step, which draft and target
share, both laws of a token are Gaussian with one variance: N(mean_q, s^2) and N(mean_p, s^2). Speculative sampling
between these two commits the target's law given that noise, and so its law. A rejected draft is replaced by its
reflection in the hyperplane midway between the means: the reflection-maximal coupling, which draws the residual law at
once. De Bortoli et al. (2501.05370) do so at each step of a diffusion model; here it is the last step of a token."""

import torch
from torch import Tensor

from lantern.continuous.gaussian_shared import GaussianShared
from lantern.continuous.latent_sampling import GaussianNoise, verdict_on_chain
from lantern.errors import LanternError
from lantern.types import Abilities, AcceptanceRule, DraftTree, Verdict


class GaussianRatio(GaussianShared):
    """Implements lantern.types.Verification for the exact rule and chains."""

    name = "gaussian_ratio"
    abilities = Abilities()

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: GaussianNoise) -> Verdict:
        require_exact(rule, self.name)
        law = self.head(probs, noise.normals(probs.shape[1]))
        drafted = tree.tokens.roll(-1, 1)  # [B, N, C] behind a node; undefined at the last
        accept, reflected = judge_draft(law.noise, (drafted - law.mean) / law.sigma - law.noise)
        nodes = torch.arange(probs.shape[1], device=probs.device).expand(accept.shape)
        follows = noise.accepts(accept, nodes)
        return verdict_on_chain(tree, follows, law.mean + law.sigma * reflected, law.tokens)


def judge_draft(e: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """A draft mean_q + s e under the law N(mean_p, s^2); shift: (mean_q - mean_p) / s; [..., C] each. Returns the
    acceptance probability min(1, p / q) [...], and e' [..., C] such that mean_p + s e' replaces the draft if it is
    rejected."""
    along = (e * shift).sum(-1)
    squared = shift.square().sum(-1)
    accept = (-along - squared / 2).clamp(max=0).exp()
    reflected = e - 2 * shift * (along / squared.clamp(min=torch.finfo(e.dtype).tiny))[..., None]
    return accept, reflected


def require_exact(rule: AcceptanceRule, name: str) -> None:
    if not rule.lossless:
        raise LanternError(f"verification={name} relaxes nothing; use acceptance=exact, not {rule.name}")
