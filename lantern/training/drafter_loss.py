"""Distillation losses between target law p and draft law q: soft cross-entropy, and the LK loss -log alpha
(2602.23881), where alpha = sum_x min(p, q) is the acceptance probability of a drawn token."""

import torch
from torch import Tensor

ROWS_AT_ONCE = 64


def overlap(p: Tensor, q: Tensor) -> Tensor:  # [..., V], [..., V] -> [...]
    """alpha: the acceptance probability of a token drawn from q and judged by p (Leviathan et al., 2211.17192)."""
    return torch.minimum(p, q).sum(-1)


class LawLoss(torch.autograd.Function):
    """Weighted soft cross-entropy and LK loss with the gradient in closed form, ROWS_AT_ONCE rows at a time: a chunk
    stays in the processor's cache, where autograd would make many passes over [..., V]."""

    @staticmethod
    def forward(ctx, p: Tensor, draft_logits: Tensor, weights: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
        gradient = torch.empty_like(draft_logits)
        rows = (part.flatten(0, -2).split(ROWS_AT_ONCE) for part in (p, draft_logits, gradient))
        sums = torch.stack([_law_gradient(*chunk, weights) for chunk in zip(*rows, strict=True)]).sum(0)
        num_sites = gradient[..., 0].numel()
        ctx.save_for_backward(gradient.div_(num_sites))
        terms = (sums / num_sites).unbind()
        ctx.mark_non_differentiable(*terms)
        return weights[0] * terms[0] + weights[1] * terms[1], *terms

    @staticmethod
    def backward(ctx, upstream: Tensor, *_: Tensor) -> tuple[None, Tensor, None]:
        return None, ctx.saved_tensors[0] * upstream, None


def _law_gradient(p: Tensor, draft_logits: Tensor, gradient: Tensor, weights: tuple[float, float]) -> Tensor:
    """[rows, V] each; writes the gradient with respect to the draft logits. -> [2] the two losses, summed over rows."""
    log_q = draft_logits.to(p.dtype).log_softmax(-1)  # float32 at least, like p
    cross_entropy = -torch.linalg.vecdot(p, log_q)
    q = log_q.exp_()
    alpha = overlap(p, q).clamp(min=1e-6)
    below = torch.where(q < p, q, 0)  # where alpha increases with q
    scale = (weights[1] / alpha)[:, None]
    torch.sub(q * (weights[0] + scale * below.sum(-1, keepdim=True)), p * weights[0] + scale * below, out=q)
    gradient.copy_(q)
    return torch.stack([cross_entropy.sum(), -alpha.log().sum()])


def law_loss(p: Tensor, draft_logits: Tensor, weights: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """[..., V], [..., V] -> the weighted sum to minimise, then soft cross-entropy and LK loss, means over sites."""
    return LawLoss.apply(p, draft_logits, weights)


def chained_length(alphas: Tensor) -> Tensor:  # [depth, B, T] -> scalar
    """Mean accepted length of a chain: sum over d of the product of the first d acceptance probabilities.

    alphas[d, :, t] is the overlap at token t after d drafted tokens: a chain follows the diagonal.
    """
    depth, _, length = alphas.shape
    roots = length - depth + 1
    diagonal = torch.stack([alphas[d, :, d : d + roots] for d in range(depth)])
    return diagonal.cumprod(0).sum(0).mean()
