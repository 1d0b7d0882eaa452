"""The laws and the noise of a batch of images under teacher forcing, as decoding computes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lantern.models.llamagen.fused import linear
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.noise import MAX_TABLE, pick_weights, winners
from lantern.sampling import Sampling
from lantern.training.losses.sites import overlap
from lantern.types import Target


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
    """Implements head_blocks.Teaching. Position t is that of the feature which predicts token t + 1."""

    target: Target
    sampling: Sampling
    features: Tensor  # [B, L - 1, D] the target's, guided
    seeds: Tensor  # [B] of the images' noise
    head_backward: Callable[[Tensor], Tensor]  # see head_backward()

    def p(self, images: slice, positions: Tensor) -> Tensor:
        return self.sampling.law(self.target.head(self.features[images][:, positions]))

    def noise(self, images: slice, positions: Tensor) -> Tensor:
        seeds, codes = self.seeds[images], self.target.vocab_size
        if self.sampling.is_greedy:
            return torch.ones(len(seeds), len(positions), codes, device=seeds.device)
        width = max(1, MAX_TABLE // (len(seeds) * codes)) if seeds.is_cpu else len(positions)
        parts = [pick_weights(seeds, part + 1, codes) for part in positions.split(width)]
        return torch.cat(parts, dim=1)

    def q(self, rows: Tensor) -> Tensor:
        """[..., D] guided outputs of the drafter -> its laws [..., V] as decoding drafts from them."""
        return self.sampling.law(self.target.head(rows))

    def compare(self, drafted: Sequence[Tensor], images: slice) -> tuple[Tensor, Tensor, Tensor]:
        """drafted: outputs [B, L - 1, D] of each pass -> by position the largest p [b, L - 1], and by depth the overlap
        of p and q and whether their picks under the images' noise agree, [depth, b, L - 1] each."""
        positions = torch.arange(self.features.shape[1], device=self.features.device)
        with torch.autocast(positions.device.type, enabled=False):  # as decoding runs the head
            p, laws = self.p(images, positions), [self.q(rows[images]) for rows in drafted]
        noise = self.noise(images, positions)
        picks = winners(p, noise)
        agree = torch.stack([winners(q, noise) == picks for q in laws])
        return p.amax(-1), torch.stack([overlap(p, q) for q in laws]), agree.to(p.dtype)

    def scores(self, rows: Tensor) -> Tensor:
        """At the temperature of decoding, without top-k and top-p: a loss needs the logarithm at every code."""
        return replace(self.sampling, top_k=0, top_p=1.0).scores(self.target.head(rows))

    def scores_to_rows(self, gradient: Tensor) -> Tensor:
        gradient = gradient / (self.sampling.temperature or 1.0)
        return self.head_backward(gradient.to(self.features.dtype))
