"""What the frozen target teaches under teacher forcing: its features, laws and noise at all positions of an image, as
decoding computes them; and a drafter's losses against them, a block of sites at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import layered
from lantern.models.llamagen.fused import linear
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.noise import MAX_TABLE, gumbel_argmax, pick_noise
from lantern.sampling import Sampling
from lantern.training.drafter.losses import SiteLoss, Sites, overlap
from lantern.types import DraftTree, Target

SITES_AT_ONCE = {"cpu": 128}  # a block's laws stay in the processor's cache; those of all sites never exist at once
MANY_SITES = 8192  # at once on other devices


def guided_target(target: Target, cfg_scale: float) -> Target:
    """The target under the guidance that decoding will use, for all parts of a training run to share."""
    return target.configured(cfg_scale)


def target_features(target: Target, tokens: Tensor, captions: list[str], layers: Sequence[int] = ()) -> Tensor:
    """tokens [B, L] after captions -> features [B, R, P + L - 1, F] as in Forward.features: after the final norm, then
    the inputs of `layers`. They have decoding's precision, even under a training's autocast."""
    with torch.autocast(tokens.device.type, enabled=False), torch.no_grad():
        teach = getattr(target, "teach", None) or partial(features_of_decoding, target)
        return teach(tokens, captions, layers)


def features_of_decoding(target: Target, tokens: Tensor, captions: list[str], layers: Sequence[int] = ()) -> Tensor:
    """target_features for any target, in the caller's precision: one verification pass over the image as a chain."""
    batch, length = len(tokens), tokens.shape[1] - 1
    target.allocate(batch, length)
    if layers:
        layered(target).hand_out(layers)
    prefix = target.prefill(captions, torch.arange(batch, device=tokens.device)).features
    parents = torch.arange(-1, length - 1, device=tokens.device).expand(batch, -1)
    return torch.cat([prefix, target.verify(DraftTree(tokens[:, :-1], parents)).features], dim=2)


def head_backward(target: Target) -> Callable[[Tensor], Tensor]:
    """The product with the head's transposed weight: gradients of logits [..., V] -> of features [..., D]."""
    if not isinstance(target, LlamaGenTarget):
        return head_by_autograd(target)
    product = linear(target.transformer.output.weight.T.contiguous())  # prepacked: three times as fast on a CPU
    return lambda gradient: product(gradient.flatten(0, -2)).unflatten(0, gradient.shape[:-1])


def head_by_autograd(target: Target) -> Callable[[Tensor], Tensor]:
    """head_backward of any target."""

    def backward(gradient: Tensor) -> Tensor:
        rows = gradient.new_zeros(*gradient.shape[:-1], target.embed_weight.shape[1]).requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(target.head(rows), rows, gradient)[0]

    return backward


@dataclass(frozen=True, eq=False)
class GuidedLaws:
    """What a batch of images teaches. Position t is that of the feature which predicts token t + 1."""

    target: Target
    sampling: Sampling
    features: Tensor  # [B, L - 1, D] the target's, guided
    head_backward: Callable[[Tensor], Tensor]

    @property
    def positions(self) -> Tensor:  # [L - 1]
        return torch.arange(self.features.shape[1], device=self.features.device)

    def p(self, images: slice, positions: Tensor) -> Tensor:
        return self.sampling.law(self.target.head(self.features[images][:, positions]))

    def noise(self, seeds: Tensor, positions: Tensor) -> Tensor:
        """seeds [b] of images -> exp(G) of their shared noise [b, T, V]."""
        codes = self.target.vocab_size
        if self.sampling.is_greedy:
            return torch.ones(len(seeds), len(positions), codes, device=seeds.device)
        width = max(1, MAX_TABLE // (len(seeds) * codes)) if seeds.is_cpu else len(positions)
        parts = [pick_noise(seeds, part + 1, codes) for part in positions.split(width)]
        return torch.cat(parts, dim=1)

    def q(self, rows: Tensor) -> Tensor:
        """[..., D] guided outputs of the drafter -> its laws [..., V] as decoding drafts from them."""
        return self.sampling.law(self.target.head(rows))

    def compare(self, drafted: Sequence[Tensor], images: slice, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """drafted: outputs [B, L - 1, D] of each pass; seeds [B] of the images' noise -> largest p per position
        [b, L - 1]; overlap of p and q, and whether their picks under the noise agree, each [depth, b, L - 1]."""
        positions = self.positions
        with torch.autocast(positions.device.type, enabled=False):  # as decoding runs the head
            p, laws = self.p(images, positions), [self.q(rows[images]) for rows in drafted]
        noise = self.noise(seeds[images], positions)
        picks = gumbel_argmax(p, noise)
        agree = torch.stack([gumbel_argmax(q, noise) == picks for q in laws])
        return p.amax(-1), torch.stack([overlap(p, q) for q in laws]), agree.to(p.dtype)

    def scores(self, rows: Tensor) -> Tensor:
        """Scores at decoding's temperature without top-k and top-p: a loss needs log q of every code."""
        return replace(self.sampling, top_k=0, top_p=1.0).scores(self.target.head(rows))

    def scores_to_rows(self, gradient: Tensor) -> Tensor:
        gradient = gradient / (self.sampling.temperature or 1.0)
        return self.head_backward(gradient.to(self.features.dtype))


def site_losses(drafted: Tensor, teaching: GuidedLaws, loss: SiteLoss) -> tuple[Tensor, Tensor]:
    """drafted [depth, B, S, D]: guided outputs of pass d at the positions d … d + S - 1 -> losses and overlaps [depth,
    B, S]; the losses carry the gradient."""
    with torch.autocast(drafted.device.type, enabled=False):  # as decoding runs the head
        return _BlockwiseLoss.apply(drafted, teaching, loss)


class _BlockwiseLoss(torch.autograd.Function):
    """Computes the gradient of the outputs already in forward, with the losses, while a block's laws are in memory."""

    @staticmethod
    def forward(ctx, drafted: Tensor, teaching: GuidedLaws, loss: SiteLoss) -> tuple[Tensor, Tensor]:
        gradient = torch.empty_like(drafted)
        dtype = torch.promote_types(drafted.dtype, torch.float32)
        losses, alphas = drafted.new_empty(2, *drafted.shape[:-1], dtype=dtype).unbind()
        for images, block in _blocks(drafted):
            width = block.stop - block.start
            positions = torch.arange(block.start, block.stop + len(drafted) - 1, device=drafted.device)
            p = teaching.p(images, positions)
            for d, outputs in enumerate(drafted):
                at = slice(d, d + width)
                scores = teaching.scores(outputs[images, block]).requires_grad_()
                with torch.enable_grad():
                    sites = Sites(p[:, at], scores.log_softmax(-1))
                    value = loss(sites)
                    (by_score,) = torch.autograd.grad(value.sum(), scores)
                gradient[d, images, block] = teaching.scores_to_rows(by_score)
                losses[d, images, block], alphas[d, images, block] = value.detach(), sites.alpha.detach()
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(alphas)
        return losses, alphas

    @staticmethod
    def backward(ctx, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[..., None].to(gradient.dtype), None, None


def _blocks(drafted: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of images and of roots that hold as many sites as are computed at once."""
    _, batch, size, _ = drafted.shape
    limit = SITES_AT_ONCE.get(drafted.device.type, MANY_SITES)
    images, width = max(1, limit // size), min(limit, size)
    for first in range(0, batch, images):
        for start in range(0, size, width):
            yield slice(first, first + images), slice(start, min(start + width, size))
