"""Distils EAGLE's layer on a frozen target of continuous tokens: SmoothL1 of features alone, unrolled on the layer's
own outputs. A loss on tokens would need the gradient of all steps of the diffusion head, for what it computes from the
feature; validation runs the head and measures what decoding will accept."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from lantern.continuous.latent_sampling import TokenHead
from lantern.continuous.target import ContinuousLlamaGenTarget
from lantern.errors import LanternError
from lantern.training.data_module import step_generator
from lantern.training.drafter.drafter_task import DrafterPairs, NetworkTask
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.drafter.unroll import all_roots
from lantern.training.drafter.variants import EagleStudent, start_linear

SITES = 16  # positions of an image at which validation runs the head


class LatentDrafterTask(NetworkTask):
    """Batches: {"tokens": latents [B, L, C] as the tokenizer encodes them, "caption": B captions}."""

    def __init__(
        self, target: ContinuousLlamaGenTarget, lr: float, muon_lr: float, weight_decay: float, depth: int,
        validation_depth: int, seed: int,
    ) -> None:  # fmt: skip
        """depth: passes of training, the first on the target's features."""
        super().__init__()
        if min(depth, validation_depth) < 1 or max(depth, validation_depth) >= target.num_tokens:
            raise LanternError(
                f"task.depth={depth}, task.validation_depth={validation_depth}: an image has {target.num_tokens} "
                "tokens; give at least one pass and fewer than that"
            )
        self.target, self.student, self._head = target, EagleStudent(), TokenHead(target)
        self.lr, self.muon_lr, self.weight_decay = lr, muon_lr, weight_decay
        self.depth, self.validation_depth, self.seed = depth, validation_depth, seed
        self.network = self.student.build(target, layers=())

    def training_step(self, batch: dict, batch_idx: int) -> Tensor:
        pairs = self._pairs(batch)
        if self.global_step == 0:  # the layer behind the input layer starts as the identity
            inputs, first = torch.cat([pairs.embeddings, pairs.previous], -1), self.target.prefix_len - 1
            start_linear(self, self.network.fc, inputs[:, first:], pairs.features[:, first:])
        loss = torch.stack(self._losses(pairs, self._passes(pairs, self.depth))).mean()
        self.log("train/loss", loss, prog_bar=True)
        return loss

    @torch.no_grad()
    def validation_step(self, batch: dict, batch_idx: int) -> None:
        """By depth the feature loss and the overlap of the laws of the last denoising step; the expected length of an
        accepted chain, if acceptance at one depth told nothing of the next."""
        size, pairs = len(batch["tokens"]), self._pairs(batch)
        passes = self._passes(pairs, self.validation_depth)
        overlaps = self._overlaps(pairs, passes, step_generator(self.seed, batch_idx))
        for d, (loss, overlap) in enumerate(zip(self._losses(pairs, passes), overlaps, strict=True)):
            self.log(f"val/loss_{d + 1}", loss, batch_size=size, sync_dist=True)
            self.log(f"val/overlap_{d + 1}", overlap, batch_size=size, prog_bar=d == 0, sync_dist=True)
        length = overlaps.cumprod(0).sum()
        self.log("val/sim_accept_len", length, batch_size=size, prog_bar=True, sync_dist=True)

    def _passes(self, pairs: DrafterPairs, depth: int) -> list[Tensor]:
        """Outputs of each pass d (from 0) at the image's positions from the d-th on [B R, L - 1 - d, D]."""
        first, length = self.target.prefix_len - 1, pairs.previous.shape[1]
        rotation, roots = self.target.rotation[None, 1 : length + 1], all_roots(first, length, depth)
        head, *later = self.student.passes(self.network, pairs.embeddings, pairs.previous, rotation, roots)
        return [head[:, first:], *later]

    def _losses(self, pairs: DrafterPairs, passes: list[Tensor]) -> list[Tensor]:
        first = self.target.prefix_len - 1
        return [F.smooth_l1_loss(made, pairs.features[:, first + d :]) for d, made in enumerate(passes)]

    def _overlaps(self, pairs: DrafterPairs, passes: list[Tensor], generator: torch.Generator) -> Tensor:
        """[depth] mean of 2 Phi(-|mean_q - mean_p| / 2 s) under shared noise, at SITES positions of each image."""
        first, last = self.target.prefix_len - 1, pairs.features.shape[1] - 1
        sites = torch.linspace(first + len(passes), last, SITES).long()
        p = self._conditions(pairs.features[:, sites])
        noise = torch.randn(*p.shape[:2], *self._head.shape, generator=generator).to(p.device)
        drafted = (made[:, sites - first - d] for d, made in enumerate(passes))
        with torch.autocast(p.device.type, enabled=False):  # as decoding runs the head
            mean, sigma, _ = self._head(p, noise)
            means = [self._head(self._conditions(made), noise).mean for made in drafted]
        apart = torch.stack([(found - mean).norm(dim=-1) / sigma for found in means])
        return (2 * torch.special.ndtr(-apart / 2)).mean((1, 2))

    def _conditions(self, features: Tensor) -> Tensor:  # [B R, T, D] -> [B, T, R D]
        return self.target.guide(rearrange(features, "(b r) t d -> b r t d", r=self.target.guidance))

    @torch.no_grad()
    def _pairs(self, batch: dict) -> DrafterPairs:
        """Pairs as in decoding: zeros at prefix positions, then token t with feature t - 1."""
        target, dtype = self.target, self.network.fc.weight.dtype
        tokens = target.tokenizer.standardisation(batch["tokens"])
        features = target_features(target, tokens, batch["caption"]).clone()  # autograd rejects inference tensors
        features = rearrange(features, "b r t d -> (b r) t d").to(dtype)
        text = target.empty_tokens(len(tokens), target.prefix_len - 1)
        embeddings = target.embed(torch.cat([text, tokens[:, :-1].to(text)], 1)).repeat_interleave(target.guidance, 0)
        return DrafterPairs(embeddings.to(dtype), features[:, :-1], features[:, 1:])
