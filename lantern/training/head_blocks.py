"""The head over the codebook and a loss behind it, a block of sites at a time: a block's laws stay in the processor's
cache, and neither logits nor their gradients exist for all sites at once."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from lantern.training.losses.sites import SiteLoss, Sites

SITES_AT_ONCE = {"cpu": 128}
MANY = 8192  # on other devices


class Teaching(Protocol):
    """What a batch of images teaches, by slices of its images and positions [U]."""

    def p(self, images: slice, positions: Tensor) -> Tensor: ...  # [b, U, V] the target's laws
    def noise(self, images: slice, positions: Tensor) -> Tensor: ...  # [b, U, V] exp(G) of shared noise
    def scores(self, rows: Tensor) -> Tensor: ...  # [..., D] guided outputs of the drafter -> log q up to a constant
    def scores_to_rows(self, gradient: Tensor) -> Tensor: ...  # [..., V] -> [..., D]: the gradient of scores, backward


def site_losses(
    drafted: Tensor, roots: Tensor, passes: Tensor, teaching: Teaching, loss: SiteLoss
) -> tuple[Tensor, Tensor]:
    """drafted [depth, B, S, D]: guided outputs of each pass at the positions roots [S] + depth; passes [S] of each
    chain, those behind them being left out; both on the host -> losses and overlaps [depth, B, S], 0 where left out;
    the losses carry the gradient."""
    with torch.autocast(drafted.device.type, enabled=False):  # as decoding runs the head
        return _BlockwiseLoss.apply(drafted, roots, passes, teaching, loss)


class _BlockwiseLoss(torch.autograd.Function):
    """The gradient with respect to the outputs is computed with the losses, while a block's laws are at hand."""

    @staticmethod
    def forward(
        ctx, drafted: Tensor, roots: Tensor, passes: Tensor, teaching: Teaching, loss: SiteLoss
    ) -> tuple[Tensor, Tensor]:
        gradient = torch.zeros_like(drafted)
        dtype = torch.promote_types(drafted.dtype, torch.float32)
        losses, alphas = drafted.new_zeros(2, *drafted.shape[:-1], dtype=dtype).unbind()
        for images, block in _blocks(drafted):
            positions, kept = _placed(roots[block], passes[block], len(drafted), drafted.device)
            p, noise = teaching.p(images, positions), _noise(teaching, images, positions)
            for d, (at, goes_on) in enumerate(kept):
                here = images, block.start + goes_on
                scores = teaching.scores(drafted[d][here]).requires_grad_()
                with torch.enable_grad():
                    sites = Sites(p[:, at], scores.log_softmax(-1), noise(at))
                    value = loss(sites)
                    (by_score,) = torch.autograd.grad(value.sum(), scores)
                gradient[d][here] = teaching.scores_to_rows(by_score).to(gradient.dtype)  # indexing does not cast
                losses[d][here], alphas[d][here] = value.detach().to(dtype), sites.alpha.detach().to(dtype)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(alphas)
        return losses, alphas

    @staticmethod
    def backward(ctx, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[..., None].to(gradient.dtype), None, None, None, None


def _blocks(drafted: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of images and of roots that hold as many sites as are computed at once."""
    _, batch, size, _ = drafted.shape
    limit = SITES_AT_ONCE.get(drafted.device.type, MANY)
    images, width = max(1, limit // size), min(limit, size)
    for first in range(0, batch, images):
        for start in range(0, size, width):
            yield slice(first, first + images), slice(start, start + width)


def _placed(
    roots: Tensor, passes: Tensor, depth: int, device: torch.device
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:  # fmt: skip
    """A block's roots [s] and passes [s] on the host -> on the device, by one upload, its positions [U], and of each
    pass d the chains that have it with the indices of their positions."""
    positions, index = (roots + torch.arange(depth)[:, None]).unique(return_inverse=True)  # [U], [depth, s]
    chains = [(passes > d).nonzero()[:, 0] for d in range(int(passes.max()))]
    at = [index[d, goes_on] for d, goes_on in enumerate(chains)]
    parts = [positions, *at, *chains]
    positions, *others = torch.cat(parts).to(device).split([len(part) for part in parts])
    return positions, list(zip(others[: len(chains)], others[len(chains) :], strict=True))


def _noise(teaching: Teaching, images: slice, positions: Tensor) -> Callable[[Tensor], Callable[[], Tensor]]:
    """The noise of a block, made at most once, and only for a loss that reads it."""
    whole = cache(lambda: teaching.noise(images, positions))
    return lambda at: lambda: whole()[:, at]
