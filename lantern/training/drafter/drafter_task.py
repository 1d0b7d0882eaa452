"""Distils a drafter on a frozen target by a recipe: losses on the guided sampling law and on features, unrolled as
decoding runs the drafter. Validation measures what decoding will accept under ratio verification and shared noise."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import hypot
from pathlib import Path
from typing import NamedTuple

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.utils.data import default_collate

from lantern.drafters.eagle.feature_drafter import layered, require_layers
from lantern.drafters.eagle.network import AddedLayers, EagleNetwork
from lantern.drafters.loading import DESCRIPTION
from lantern.errors import LanternError, check_least, check_whole
from lantern.models.checkpoints import save_weights
from lantern.models.token_grid import has_latents
from lantern.sampling import Sampling
from lantern.training.data_module import TrainingData, batch_uniform
from lantern.training.drafter.losses import chained_length, overlap
from lantern.training.drafter.recipe import Recipe
from lantern.training.drafter.teacher_forcing import GuidedLaws, head_backward, site_losses, target_features
from lantern.training.drafter.unroll import Unroll, all_roots, unroll
from lantern.training.drafter.variants import describe, loaded_network, new_network, start_linear
from lantern.training.optimizers import matrices, muon_with_adamw
from lantern.training.run.budget import progress_of
from lantern.training.run.lightning_internals import batches_before
from lantern.types import Target

LEAST_GAP = 0.02  # between their overlaps, from which more images help
FOREIGN_GAP = 0.05  # between held-out images of the data and the target's own, from which the latter help


class DrafterPairs(NamedTuple):
    """The drafter's inputs, T = P + L - 2 pairs (token, previous feature), the last L - 1 of the image; and targets."""

    embeddings: Tensor  # [B R, T, D] of the tokens
    previous: Tensor  # [B R, T, F] the target's Forward.features one position earlier
    features: Tensor  # [B R, T, D] target features at the tokens' positions: the regression targets


class DrafterTask(pl.LightningModule):
    """Batches: {"tokens": [B, L], "caption": B captions}, optionally cached "features" [B, R, P + L - 1, F].
    Validation batches also have "noise_seed" [B]: seeds of the shared noise with which the target drew the images."""

    compared = 32  # images of each origin whose overlaps are compared at the end

    def __init__(
        self, target: Target, sampling: Sampling, recipe: Recipe, lr: float, muon_lr: float, weight_decay: float,
        validation_depth: int, seed: int, num_layers: int = 1, input_norms: bool = True, start_from: str | None = None,
    ) -> None:  # fmt: skip
        """num_layers: of the drafter, at least; input_norms: of a new one, see EagleNetwork; start_from: a drafter
        checkpoint to train further."""
        super().__init__()
        if has_latents(target):
            raise LanternError("drafters are trained for codes, not for latents; drafter=latent_jacobi is untrained")
        check_whole("distil.student", 1, num_layers=num_layers)
        check_least("distil", 1, validation_depth=validation_depth)
        self.target, self.sampling, self.recipe = target, sampling, recipe
        self.lr, self.muon_lr, self.weight_decay = lr, muon_lr, weight_decay
        self.validation_depth, self.seed = validation_depth, seed
        self.num_layers, self.start_from = num_layers, start_from
        layers = recipe.layers(layered(target).num_layers) if recipe.layers else ()
        reads = layers, recipe.adds_layers
        self.network = (
            self._load(start_from, *reads) if start_from else new_network(target, num_layers, *reads, input_norms)
        )

    @cached_property
    def _head_backward(self):
        """Built at first use, because callbacks may move the target in their setup."""
        return head_backward(self.target)

    def _load(self, start_from: str, layers: Sequence[int], adds_layers: bool) -> EagleNetwork:
        network = loaded_network(start_from, self.target, self.num_layers)
        if adds_layers and not network.reads.layers:  # the added layers' map starts at zero
            require_layers(self.target, layers)
            network.reads = AddedLayers(network.fc.out_features, layers)
        if (tuple(layers), adds_layers) != (network.reads.layers, network.reads.adds):
            raise LanternError(f"task.start_from={start_from} reads other layers; give the recipe that trained it")
        return network

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return muon_with_adamw(self.network, matrices(self.network), self.lr, self.muon_lr, self.weight_decay)

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Adds the drafter's config, so that lantern.drafters.loading can load the drafter from this file alone."""
        checkpoint[DESCRIPTION] = describe(self.network, self.target)

    def export(self, folder: Path) -> None:
        """Writes the drafter in the format of lantern.drafters.loading."""
        save_weights(folder, self.network.state_dict(), describe(self.network, self.target))

    def training_step(self, batch: dict, batch_idx: int) -> Tensor:
        recipe, pairs = self.recipe, self._pairs(batch)
        if not self.start_from and not batches_before(self):
            self._start_linear(pairs)
        laws = self._laws(pairs)
        if recipe.feature_noise:
            pairs = pairs._replace(previous=pairs.previous + recipe.feature_noise * self._noise(pairs.previous))
        losses, features = self._lessons(pairs, laws)
        loss = recipe.objective(losses)
        if recipe.feature_weight:
            regression = torch.stack([F.smooth_l1_loss(own.float(), taught.float()) for own, taught in features]).mean()
            loss = loss + recipe.feature_weight * regression
            self.log("train/feature_loss", regression)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def _lessons(self, pairs: DrafterPairs, laws: GuidedLaws) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """-> losses [depth, B, S]; of each pass the drafter's features and the target's, of the first at all image
        positions, of later ones at chain sites."""
        depth, first = self._depth(), self.target.prefix_len - 1
        at = first + torch.arange(laws.features.shape[1] - depth + 1)  # the chains' roots
        passes = list(self._run(self.recipe.unroll or unroll, pairs, [at] * (depth - 1)))
        drafted = [self._guide(outputs) for outputs in (passes[0][:, at], *passes[1:])]
        losses, alphas = site_losses(torch.stack(drafted), laws, self.recipe.loss)
        self.log("train/overlap", alphas.mean())
        later = [(outputs, pairs.features[:, at + d]) for d, outputs in enumerate(passes[1:], start=1)]
        return losses, [(passes[0][:, first:], pairs.features[:, first:]), *later]

    def _depth(self) -> int:
        """Passes of this step: one before recipe.unroll_from, because a second one doubles the time."""
        begins = self.recipe.unroll_from
        return 1 if begins and progress_of(self.trainer) < begins else self.recipe.depth

    def _noise(self, features: Tensor) -> Tensor:  # [B R, T, D] -> uniform in [-1, 1), keyed by image
        guidance = self.target.guidance
        shape = (guidance, *features.shape[1:])
        process = self.global_rank, self.trainer.world_size, features.device
        noise = batch_uniform(len(features) // guidance, shape, self.seed, batches_before(self), *process)
        return noise.flatten(0, 1) * 2 - 1

    @torch.no_grad()
    def _start_linear(self, pairs: DrafterPairs) -> None:
        """Initialises the student's input layers by least squares on the first batch of all processes: the best linear
        drafter, since the layer behind them starts as the identity."""
        first, dim, reads = self.target.prefix_len - 1, pairs.features.shape[-1], self.network.reads
        if reads.layers and not reads.adds:  # predict the head's input from layers at the same position
            start_linear(self, reads.fc, reads.normed(pairs.previous)[:, first:], pairs.previous[:, first:, :dim])
        inputs = self.network.joined(pairs.embeddings, reads(pairs.previous))
        start_linear(self, self.network.fc, inputs[:, first:], pairs.features[:, first:])

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        size = len(batch["tokens"])
        certainty, alphas, agreements = self.compare(batch, batch["noise_seed"])
        self._log_all("sim_accept_len", "alpha", alphas, size)
        self._log_all("sim_agree_len", "agreement", agreements, size)
        self.log("val/target_top1", certainty.mean(), batch_size=size, sync_dist=True)

    def compare(self, batch: dict, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> largest p per site [B, L - 1]; overlap, and agreement under noise of `seeds`, each [depth, B, L - 1]."""
        pairs = self._pairs(batch)
        laws = self._laws(pairs)
        drafted = [self._guide_image(outputs) for outputs in self._passes(pairs, self.validation_depth)]
        images = [slice(i, i + 1) for i in range(len(seeds))]  # all laws at once are large
        by_image = [laws.compare(drafted, image, seeds) for image in images]
        certainty, alphas, agreements = (torch.cat(parts, dim=-2) for parts in zip(*by_image, strict=True))
        return certainty, alphas, agreements

    def compare_origins(self, batches: TrainingData, validated: float | None = None) -> str:
        """The overlap at the first token on training images and on held-out ones alike, under teacher forcing; what
        limits it: too few images, or others than the target draws, or the drafter. validated: val/alpha_1 of it."""
        seen, unseen = (self._overlaps(items) for items in batches.seen_and_unseen(self.compared))
        gap = float(seen.mean() - unseen.mean())
        errors = [float(found.std()) / len(found) ** 0.5 for found in (seen, unseen)]  # nan for a single image
        advice = "it knows its training images better: feed it more images"
        if not gap > max(2 * hypot(*errors), LEAST_GAP):
            advice = "it does as well on images it has not seen: train it longer, or give it more layers"
        foreign = 0.0 if batches.unseen is None or validated is None else float(unseen.mean()) - validated
        if foreign > 1.96 * errors[1] + FOREIGN_GAP:
            advice = "the target draws other images than these: train on its own, by task=drafter_self"
        means = [f"{x.mean():.3f}±{1.96 * error:.3f}" for x, error in zip((seen, unseen), errors, strict=True)]
        drawn, known = "drawn by the target", "" if validated is None else f"={validated:.3f}"
        of = drawn if batches.unseen is None else "of the data set"
        said = f"overlap {means[0]} on training images, {means[1]} on held-out ones, both {of}"
        return f"{said}; val/alpha_1{known} is that on images {drawn}; {advice}"

    @torch.no_grad()
    def _overlaps(self, items: Sequence[dict]) -> Tensor:
        """The overlap at the first token, as val/alpha_1, of each image [N]."""
        found, device = [], self.target.embed_weight.device
        self.network.to(device)
        for item in items:
            batch = default_collate([item])
            pairs = self._pairs({k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()})
            laws = self._laws(pairs)
            drafted = self._guide_image(next(self._passes(pairs, 1)))
            found.append(overlap(laws.p(slice(0, 1), laws.positions), laws.q(drafted)).mean())
        return torch.stack(found)

    def _log_all(self, length: str, name: str, accepted: Tensor, size: int) -> None:
        """accepted [depth, B, L - 1]: probability that a draft is accepted, by depth."""
        self.log(f"val/{length}", chained_length(accepted), batch_size=size, prog_bar=True, sync_dist=True)
        for d, at_depth in enumerate(accepted):
            mean = at_depth[:, d:].mean()
            self.log(f"val/{name}_{d + 1}", mean, batch_size=size, prog_bar=d == 0, sync_dist=True)

    def _passes(self, pairs: DrafterPairs, depth: int) -> Iterator[Tensor]:
        """Outputs [B R, T, D] of each pass, run as in decoding, for all chains in the image; zeros elsewhere."""
        first, length = self.target.prefix_len - 1, pairs.previous.shape[1]
        for d, outputs in enumerate(self._run(unroll, pairs, all_roots(first, length, depth))):
            yield F.pad(outputs, (0, 0, length - outputs.shape[1], 0)) if d else outputs

    def _run(self, unroll: Unroll, pairs: DrafterPairs, roots: Sequence[Tensor]) -> Iterator[Tensor]:
        rotation = self.target.rotation[None, 1 : pairs.previous.shape[1] + 1]
        return unroll(self.network, pairs.embeddings, self.network.reads(pairs.previous), rotation, roots)

    def _laws(self, pairs: DrafterPairs) -> GuidedLaws:
        return GuidedLaws(self.target, self.sampling, self._guide_image(pairs.features), self._head_backward)

    def _guide_image(self, features: Tensor) -> Tensor:  # [B R, T, D] -> [B, L - 1, D], image positions only
        return self._guide(features[:, self.target.prefix_len - 1 :])

    def _guide(self, features: Tensor) -> Tensor:  # [B R, T, D] -> [B, T, D]
        rows = features.to(self.target.embed_weight.dtype)
        with torch.autocast(rows.device.type, enabled=False):  # as decoding guides
            return self.target.guide(rearrange(rows, "(b r) t d -> b r t d", r=self.target.guidance))

    @torch.no_grad()
    def _pairs(self, batch: dict) -> DrafterPairs:
        """Pairs as in decoding: code 0 at prefix positions, then token t with feature t - 1."""
        tokens, guidance = batch["tokens"], self.target.guidance
        features = batch.get("features")
        if features is None:
            features = target_features(self.target, tokens, batch["caption"], self.network.reads.layers)
        features = features.clone()  # autograd rejects inference tensors
        features = rearrange(features, "b r t f -> (b r) t f")
        text = tokens.new_zeros(len(tokens), self.target.prefix_len - 1)
        weight = self.network.embedding(self.target.embed_weight)
        embeddings = F.embedding(torch.cat([text, tokens[:, :-1]], dim=1), weight).repeat_interleave(guidance, 0)
        dtype = self.network.fc.weight.dtype  # the drafter may have a wider dtype than the target
        return DrafterPairs(embeddings.to(dtype), features[:, :-1].to(dtype), features[:, 1:, : weight.shape[1]])
