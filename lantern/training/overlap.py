"""What a drafter is trained for: agreement of laws. alpha = sum_x min(p, q) is the chance that a drawn token is
accepted; its negative logarithm is the LK loss (2602.23881)."""

import torch
from torch import Tensor


def overlap(p: Tensor, q: Tensor) -> Tensor:  # [..., V], [..., V] -> [...]
    """alpha: the acceptance probability of a token drawn from q and judged by p (Leviathan et al., 2211.17192)."""
    return torch.minimum(p, q).sum(-1)


def law_losses(p: Tensor, draft_logits: Tensor) -> tuple[Tensor, Tensor]:  # [..., V], [..., V] -> scalars
    """Soft cross-entropy and LK loss of the draft law against the target's, both means over sites."""
    log_q = draft_logits.float().log_softmax(-1)
    cross_entropy = -(p * log_q).sum(-1).mean()
    return cross_entropy, -overlap(p, log_q.exp()).clamp(min=1e-6).log().mean()


def chained_length(alphas: Tensor) -> Tensor:  # [depth, B, T] -> scalar
    """Mean accepted length of a chain: sum over d of the product of the first d acceptance probabilities.

    alphas[d, :, t] is the overlap at token t when d tokens before it were drafted: a chain climbs the diagonal.
    """
    depth, _, length = alphas.shape
    roots = length - depth + 1
    diagonal = torch.stack([alphas[d, :, d : d + roots] for d in range(depth)])
    return diagonal.cumprod(0).sum(0).mean()
