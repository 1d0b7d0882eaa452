"""Distils a drafter on a frozen target: SmoothL1 on features (2401.15077), soft cross-entropy and LK loss on the
guided sampling law (2602.23881), unrolled on the drafter's own features (2408.15766)."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from lantern.models.checkpoints import save_weights
from lantern.sampling import Sampling
from lantern.training.drafter_loss import chained_length, law_loss, overlap
from lantern.training.drafter_variants import EagleStudent, Student
from lantern.training.optimizers import Together, matrices, muon_with_adamw
from lantern.training.randomness import batch_uniform
from lantern.training.teacher_forcing import target_features
from lantern.types import Target

RIDGE = 0.01  # regularisation, relative to the inputs' variance


class DrafterPairs(NamedTuple):
    """The drafter's inputs, (token, previous feature) pairs, and its regression targets. T = P + L - 2 pairs, the
    image's L - 1 last."""

    embeddings: Tensor  # [B R, T, D] of the tokens
    previous: Tensor  # [B R, T, D] target features one position earlier
    features: Tensor  # [B R, T, D] target features at the tokens' positions: the regression targets


class DrafterTask(pl.LightningModule):
    """Batches: {"tokens": [B, L], "caption": B captions}, optionally with cached "features" [B, R, P + L - 1, D]."""

    def __init__(
        self, target: Target, sampling: Sampling, lr: float, muon_lr: float, weight_decay: float, depth: int,
        validation_depth: int, feature_weight: float, cross_entropy_weight: float, overlap_weight: float,
        feature_noise: float, seed: int, student: Student | None = None, start_from: str | None = None,
    ) -> None:  # fmt: skip
        """student: the drafter variant, EAGLE by default; depth: training passes; feature_noise: half-width of the
        uniform noise on features; start_from: a drafter checkpoint to train further."""
        super().__init__()
        self.target, self.sampling = target, sampling
        self.lr, self.muon_lr, self.weight_decay = lr, muon_lr, weight_decay
        self.depth, self.validation_depth = depth, validation_depth
        self.feature_weight, self.law_weights = feature_weight, (cross_entropy_weight, overlap_weight)
        self.feature_noise, self.seed = feature_noise, seed
        self.student, self.start_from = student or EagleStudent(), start_from
        self.network = self.student.load(start_from, target) if start_from else self.student.build(target)

    def configure_optimizers(self) -> Together:
        hidden = matrices(self.network)
        return muon_with_adamw(self.network, hidden, self.lr, self.muon_lr, self.weight_decay)

    def training_step(self, batch: dict, batch_idx: int) -> Tensor:
        pairs = self._pairs(batch)
        if self.global_step == 0 and not self.start_from:
            self._start_linear(pairs)
        pairs = pairs._replace(previous=pairs.previous + self.feature_noise * self._noise(pairs.previous))
        p = self._law(self._guided(pairs.features))
        passes = self._passes(pairs, self.depth)
        terms = torch.stack([self._terms(pairs, p, outputs, d) for d, outputs in enumerate(passes)]).mean(0)
        for name, value in zip(("loss", "feature_loss", "cross_entropy_loss", "overlap_loss"), terms, strict=True):
            self.log(f"train/{name}", value, prog_bar=name == "loss")
        return terms[0]

    def _noise(self, features: Tensor) -> Tensor:  # [B R, T, D] -> uniform in [-1, 1), keyed by image
        guidance = self.target.guidance
        shape = (guidance, *features.shape[1:])
        process = self.global_rank, self.trainer.world_size, features.device
        noise = batch_uniform(len(features) // guidance, shape, self.seed, self.global_step, *process)
        return noise.flatten(0, 1) * 2 - 1

    @torch.no_grad()
    def _start_linear(self, pairs: DrafterPairs) -> None:
        """Initialises the student's input layers by least squares on the first batch of all processes: the best linear
        drafter, since the layer behind them starts as the identity."""
        first, inputs = self.target.prefix_len - 1, torch.cat([pairs.embeddings, pairs.previous], dim=-1)
        for ahead, fc in enumerate(self.student.input_layers(self.network)):  # predicts `ahead` positions further on
            read, predicted = inputs[:, first : inputs.shape[1] - ahead], pairs.features[:, first + ahead :]
            rows = self.all_gather(torch.cat([read, predicted], dim=-1).flatten(0, 1).float()).flatten(0, -2)
            weight, bias = least_squares(*rows.split([fc.in_features, fc.out_features], dim=-1))
            fc.weight.copy_(self.trainer.strategy.broadcast(weight))  # bitwise equal on all processes
            fc.bias.copy_(self.trainer.strategy.broadcast(bias))

    def _terms(self, pairs: DrafterPairs, p: Tensor, outputs: Tensor, skipped: int) -> Tensor:
        """Loss of one pass and its three unweighted parts, over image positions from `skipped` on."""
        rows = slice(self.target.prefix_len - 1 + skipped, None)
        regression = F.smooth_l1_loss(outputs[:, rows].float(), pairs.features[:, rows].float())
        logits = self.target.head(self._guided(outputs)[:, skipped:]) / self._temperature
        on_laws, *parts = law_loss(p[:, skipped:], logits, self.law_weights)
        return torch.stack([self.feature_weight * regression + on_laws, regression, *parts])

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        pairs = self._pairs(batch)
        p = self._law(self._guided(pairs.features))
        passes = self._passes(pairs, self.validation_depth)
        alphas = torch.stack([overlap(p, self._law(self._guided(outputs))) for outputs in passes])  # [depth, B, L - 1]
        size = len(p)
        self.log("val/sim_accept_len", chained_length(alphas), batch_size=size, prog_bar=True, sync_dist=True)
        self.log("val/target_top1", p.amax(-1).mean(), batch_size=size, sync_dist=True)  # the target's certainty
        for d, alpha in enumerate(alphas):
            self.log(f"val/alpha_{d + 1}", alpha[:, d:].mean(), batch_size=size, prog_bar=d == 0, sync_dist=True)

    @property
    def _temperature(self) -> float:
        return self.sampling.temperature or 1.0

    def _passes(self, pairs: DrafterPairs, depth: int) -> Iterator[Tensor]:  # outputs [B R, T, D] of each pass
        rotation = self.target.rotation[None, 1 : pairs.previous.shape[1] + 1]
        return self.student.passes(self.network, pairs.embeddings, pairs.previous, rotation, depth)

    def _guided(self, features: Tensor) -> Tensor:  # [B R, T, D] -> [B, L - 1, D], image positions only
        rows = features[:, self.target.prefix_len - 1 :]
        rows = rows.to(self.target.embed_weight.dtype)
        return self.target.guide(rearrange(rows, "(b r) t d -> b r t d", r=self.target.guidance))

    def _law(self, guided: Tensor) -> Tensor:  # [B, L - 1, D] -> [B, L - 1, V]
        return self.sampling.law(self.target.head(guided))

    @torch.no_grad()
    def _pairs(self, batch: dict) -> DrafterPairs:
        """Pairs as in decoding: code 0 at prefix positions, then token t with feature t - 1."""
        tokens, guidance = batch["tokens"], self.target.guidance
        features = batch.get("features")
        if features is None:
            features = target_features(self.target, tokens, batch["caption"])
        features = features.clone()  # autograd rejects inference tensors
        features = rearrange(features, "b r t d -> (b r) t d")
        text = tokens.new_zeros(len(tokens), self.target.prefix_len - 1)
        weight = self.network.embedding(self.target.embed_weight)
        embeddings = F.embedding(torch.cat([text, tokens[:, :-1]], dim=1), weight).repeat_interleave(guidance, 0)
        dtype = self.network.fc.weight.dtype  # the drafter may have a wider dtype than the target
        return DrafterPairs(embeddings.to(dtype), features[:, :-1].to(dtype), features[:, 1:])

    def export(self, folder: Path) -> None:
        """Writes the drafter in the format of lantern.drafters.loading, with the hash of its target's weights."""
        network = self.network
        config = {
            "dim": network.fc.out_features,
            "num_heads": network.attention.num_heads,
            "hidden_dim": network.feed_forward.w1.out_features,
            "vocab_size": self.target.vocab_size,
            "target_hash": self.target.weights_hash,
            **self.student.config(network),
        }
        save_weights(folder, network.state_dict(), config)


def least_squares(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """inputs [n, I], outputs [n, O] -> weight [O, I], bias [O] of the ridge regression on standardised inputs."""
    inputs, outputs = inputs.double(), outputs.double()
    mean, scale = inputs.mean(0), inputs.std(0).clamp(min=1e-4)
    z = (inputs - mean) / scale
    gram = z.T @ z + RIDGE * len(z) * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    weight = torch.linalg.solve(gram, z.T @ (outputs - outputs.mean(0))).T / scale  # [O, I]
    return weight.float(), (outputs.mean(0) - weight @ mean).float()
