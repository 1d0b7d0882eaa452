"""What a drafter is trained for: agreement of laws. alpha = sum_x min(p, q) is the chance that a drawn token is
accepted; its negative logarithm is the LK loss (2602.23881)."""

import torch
from torch import Tensor


def overlap(p: Tensor, q: Tensor) -> Tensor:  # [..., V], [..., V] -> [...]
    """alpha: the acceptance probability of a token drawn from q and judged by p (Leviathan et al., 2211.17192)."""
    return torch.minimum(p, q).sum(-1)


class LawLoss(torch.autograd.Function):
    """Weighted soft cross-entropy and LK loss with their gradient in closed form: a third of the passes over [.., V]
    that autograd would make, which on a processor is most of the time of a step."""

    @staticmethod
    def forward(ctx, p: Tensor, draft_logits: Tensor, weights: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
        log_q = draft_logits.float().log_softmax(-1)
        cross_entropy = -(p * log_q).sum(-1)
        q = log_q.exp_()
        alpha = overlap(p, q).clamp(min=1e-6)
        short = q * (q < p)  # where alpha grows with q
        gradient = (q - p).mul_(weights[0])
        gradient -= (short - q * short.sum(-1, keepdim=True)) * (weights[1] / alpha)[..., None]
        ctx.save_for_backward((gradient / alpha.numel()).to(draft_logits.dtype))
        terms = cross_entropy.mean(), -alpha.log().mean()
        ctx.mark_non_differentiable(*terms)
        return weights[0] * terms[0] + weights[1] * terms[1], *terms

    @staticmethod
    def backward(ctx, upstream: Tensor, *_: Tensor) -> tuple[None, Tensor, None]:
        return None, ctx.saved_tensors[0] * upstream, None


def law_loss(p: Tensor, draft_logits: Tensor, weights: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """[..., V], [..., V] -> the weighted sum to minimise, then soft cross-entropy and LK loss, means over sites."""
    return LawLoss.apply(p, draft_logits, weights)


def chained_length(alphas: Tensor) -> Tensor:  # [depth, B, T] -> scalar
    """Mean accepted length of a chain: sum over d of the product of the first d acceptance probabilities.

    alphas[d, :, t] is the overlap at token t when d tokens before it were drafted: a chain climbs the diagonal.
    """
    depth, _, length = alphas.shape
    roots = length - depth + 1
    diagonal = torch.stack([alphas[d, :, d : d + roots] for d in range(depth)])
    return diagonal.cumprod(0).sum(0).mean()
