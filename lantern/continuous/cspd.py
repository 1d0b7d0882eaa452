"""CSpD, "Continuous Speculative Decoding for Autoregressive Image Generation" (2411.11925), for comparison. A draft x,
drawn under noise that target and draft share, is accepted with probability min(1, r),
r = prod_(t before the last step) (|S_q,t| / |S_p,t|)^(1/2) N(x; mean_p, S_p) / N(x; mean_q, S_q); a rejected one is
drawn from N(mean_p, S_p) until one is kept, with probability max(0, 1 - q / p).

Our head's variances do not depend on the condition. So the product is 1, and the paper's rule is gaussian_ratio's
except for how it draws the replacement. With learnt variances (MAR's) the product is not 1: it comes from steps that
are not judged, so the law changes. The released code divides r's squared distances by 42: it accepts nearly all."""

from dataclasses import replace

import torch
from torch import Tensor

from lantern.continuous.gaussian_ratio import require_exact
from lantern.continuous.gaussian_shared import GaussianShared
from lantern.continuous.latent_sampling import GaussianNoise, verdict_on_chain
from lantern.errors import LanternError
from lantern.noise import Purpose
from lantern.types import AcceptanceRule, DraftTree, Target, Verdict

MAX_DRAWS = 100


class CSpD(GaussianShared):
    """Implements lantern.types.Verification for chains."""

    def __init__(self, target: Target, temperature: float = 1.0, alone: float = 0.05) -> None:
        """temperature: of the squared distances, 42 in the released code; alone: the part of an image, from its
        beginning, that the target decodes without drafts."""
        if not 0 < temperature < torch.inf or not 0 <= alone <= 1:
            raise LanternError(f"verification.temperature={temperature}, alone={alone}: give more than 0, and 0 to 1")
        super().__init__(target)
        self._temperature, self._alone = temperature, alone
        self.name = "cspd" if temperature == 1 else f"cspd_{temperature:g}"

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: GaussianNoise) -> Verdict:
        require_exact(rule, self.name)
        rows, nodes = (torch.arange(n, device=probs.device) for n in probs.shape[:2])
        law = self.head(probs, noise.normals(len(nodes)))
        shift = (tree.tokens.roll(-1, 1) - law.mean) / law.sigma - law.noise  # [B, N, C] (mean_q - mean_p) / s
        is_alone = noise.position[:, None] + 1 + nodes < self._alone * self.head.target.num_tokens
        accept = (log_ratio(law.noise + shift, shift) / self._temperature).clamp(max=0).exp().masked_fill(is_alone, 0)
        follows = noise.accepts(accept, nodes.expand(accept.shape))
        verdict = verdict_on_chain(tree, follows, law.tokens, law.tokens)
        end = verdict.accepted  # the node whose draft is rejected, or the last one
        is_rejected = (end < (~tree.is_padding).sum(1) - 1) & ~is_alone[rows, end]
        residual = law.mean[rows, end] + law.sigma * draw_residual(noise, shift[rows, end])
        return replace(verdict, next_token=torch.where(is_rejected[:, None], residual, verdict.next_token))


def log_ratio(away: Tensor, shift: Tensor) -> Tensor:
    """log p / q [...] at mean_p + s away, where mean_q = mean_p + s shift; [..., C] each."""
    return shift.square().sum(-1) / 2 - (away * shift).sum(-1)


def draw_residual(noise: GaussianNoise, shift: Tensor) -> Tensor:
    """shift [B, C] -> (x - mean_p) / s [B, C] of the first draw x that is kept, with probability max(0, 1 - q / p).
    Without one the released code commits zeros; here the last draw is."""
    draws = noise.redraws(MAX_DRAWS).to(shift.dtype)  # [B, K, C]
    number = torch.arange(MAX_DRAWS, device=shift.device)
    coins = noise.uniform(Purpose.WINDOW, noise.position[:, None], number)
    is_kept = coins < 1 - (-log_ratio(draws, shift[:, None])).exp()
    is_kept[:, -1] = True
    return draws[torch.arange(len(draws), device=shift.device), is_kept.byte().argmax(1)]
