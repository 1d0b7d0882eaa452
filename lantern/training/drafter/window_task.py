"""Trains the network of drafter=corrected_jacobi on windows that decoding itself has left: images of the training's
captions are decoded with the network as it is, losslessly, and what each round found there is kept. The tokens behind
each root are then known, and with them the target's law at every place."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.data.splits import Splits
from lantern.drafters.eagle.feature_drafter import layered
from lantern.drafters.jacobi.branches import MAX_RANKS
from lantern.drafters.jacobi.corrected import CorrectedJacobi, WindowNetwork
from lantern.drafters.loading import DESCRIPTION, drafter_folder, load_network
from lantern.errors import LanternError, check_least, check_whole
from lantern.identity import digest
from lantern.models.checkpoints import save_weights
from lantern.noise import image_seed
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.training.data_module import spaced, step_generator
from lantern.training.drafter.losses import LogOverlap, Sites
from lantern.training.drafter.recipe import late
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.optimizers import matrices, muon_with_adamw
from lantern.training.run.lightning_internals import batches_before
from lantern.types import DraftTree, Generation, Proposals, Target
from lantern.verification import SharedNoise

BEHIND_AN_ERROR = 0.3  # weight of a place behind a guess that the image does not have: it may be read before its turn


class Windows(NamedTuple):
    """What rounds began with, by window: see CorrectedJacobi."""

    image: Tensor  # [M]
    root: Tensor  # [M] its place in the image
    guesses: Tensor  # [M, W] tokens at the places, from the root on
    read: Tensor  # [M, W] tokens that the last pass has read there
    seen: Tensor  # [M]
    stale: Tensor  # [M, W + 1, F]


class Recorder(CorrectedJacobi):
    """Keeps what each round begins with."""

    def allocate(self, batch_size: int) -> None:
        super().allocate(batch_size)
        self.rounds: list[Windows] = []
        self._images = torch.arange(batch_size, device=self._at.device)

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        guesses = torch.cat([roots[:, None], self._picks[:, :-1]], 1)
        root = self._at + 1 - self.network.front
        self.rounds.append(Windows(self._images, root, guesses, self._read, self._seen, self._stale))
        return super().draft(roots, tokens_left, proposals)

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self._images = self._images[rows]


class Pool(NamedTuple):
    """Decoded images, and the windows that they left."""

    windows: Windows
    tokens: Tensor  # [B, L]
    features: Tensor  # [B, L, D] guided: they predict each token


class Captions:
    """The captions of a data set alone, or evenly spaced ones of a split, `most` of them; the task draws its images."""

    def __init__(self, images: Splits, most: int | None = None) -> None:
        check_least("batches.splits", 1, most=most)
        self.images, self.most = images, most

    def split(self, name: str) -> "CaptionSplit":
        captions = list(self.images.split(name).captions)
        return CaptionSplit([captions[i] for i in spaced(len(captions), self.most or len(captions))])


class CaptionSplit(list):
    """Implements lantern.data.splits.Split."""

    def __init__(self, captions: Sequence[str]) -> None:
        super().__init__({"caption": caption} for caption in captions)
        self.captions = list(captions)
        self.fingerprint = digest(self.captions)


class WindowTask(pl.LightningModule):
    """Batches: {"caption": B captions}. A resumed training decodes anew."""

    evaluate_with = ("+method=corrected_jacobi",)

    def __init__(
        self, target: Target, sampling: Sampling, network: dict[str, int], lengths: Sequence[int], branches: int,
        steps_per_batch: int, windows: int, kept_batches: int, lr: float, muon_lr: float, weight_decay: float,
        seed: int, validated_length: int, start_from: str | None = None,
    ) -> None:  # fmt: skip
        """network: hidden_dim, num_blocks and length of WindowNetwork; lengths: of the windows with which batches are
        decoded in turn, at last the longest with `branches` beside it; steps_per_batch: on the windows of kept_batches,
        before the next is decoded; windows: of a step; start_from: a drafter of this kind to train further."""
        super().__init__()
        check_whole("task", 1, steps_per_batch=steps_per_batch, kept_batches=kept_batches, windows=windows)
        if not lengths:
            raise LanternError("task.lengths=[] has none; give a length at least")
        check_least("task", 0, (MAX_RANKS - 1) * max(lengths), branches=branches)
        self.target, self.sampling, self.seed, self.start_from = target, sampling, seed, start_from
        self.shapes = [(length, 0) for length in lengths] + [(max(lengths), branches)] * bool(branches)
        self.steps_per_batch, self.windows, self.kept_batches = steps_per_batch, windows, kept_batches
        self.lr, self.muon_lr, self.weight_decay, self.validated_length = lr, muon_lr, weight_decay, validated_length
        if start_from:
            folder = drafter_folder(start_from, setting="task.start_from")
            self.network: WindowNetwork = load_network(folder, target, "task.start_from", WindowNetwork)
            if wrong := [
                f"{name}={found}" for name, size in network.items() if (found := self._description[name]) != size
            ]:
                raise LanternError(f"task.start_from={start_from} has {wrong[0]}; give task.network.{wrong[0]}")
        else:
            sizes = {"dim": target.embed_weight.shape[1], "row": target.grid[1], **network}
            self.network = WindowNetwork(layers=late(layered(target).num_layers), scaled=True, **sizes)
        named = {f"lengths.{i}": length for i, length in enumerate(lengths)}
        check_least("task", 2, self.network.length, validated_length=validated_length, **named)
        self._embed_weight = self.network.embeddings(target.embed_weight)
        self._loss, self._pools = LogOverlap(), list[Pool]()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return muon_with_adamw(self.network, matrices(self.network), self.lr, self.muon_lr, self.weight_decay)

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Adds the drafter's config, so that lantern.drafters.loading can load the drafter from this file alone."""
        checkpoint[DESCRIPTION] = self._description

    def export(self, folder: Path) -> None:
        """Writes the drafter in the format of lantern.drafters.loading."""
        state = {name: weight.to(self.target.embed_weight.dtype) for name, weight in self.network.state_dict().items()}
        save_weights(folder, state, self._description)

    @property
    def _description(self) -> dict[str, Any]:
        network = self.network
        return {
            "dim": network.out.out_features, "hidden_dim": network.blocks[0].out.in_features,
            "num_blocks": len(network.blocks), "layers": list(network.layers), "length": network.length,
            "row": network.row, "scaled": network.scaled,
            "vocab_size": self.target.vocab_size, "target_hash": self.target.weights_hash,
        }  # fmt: skip

    def _decode(self, captions: list[str], seeds: list[int], length: int, branches: int) -> tuple[Recorder, Generation]:
        """The captions' images, decoded with a copy of the network in the target's dtype."""
        weight = self.target.embed_weight
        with torch.autocast(weight.device.type, enabled=False):
            copy = deepcopy(self.network).to(weight)
            drafter = Recorder(copy, self.target, self.sampling, length, branches)
            pipeline = Pipeline(self.target, drafter, SharedNoise(), Exact(), self.sampling)
            generation = pipeline.generate(captions, seeds, batch_size=len(captions))
            self.target.release()  # the recorded passes of this copy
        return drafter, generation

    def _record(self, captions: list[str], shape: tuple[int, int]) -> Pool:
        number = batches_before(self) // self.steps_per_batch
        seeds = [image_seed(self.seed, f"windows {number} {self.global_rank} {x}", i) for i, x in enumerate(captions)]
        drafter, generation = self._decode(captions, seeds, *shape)
        self.log("train/tokens_per_step", generation.tokens_per_step)
        windows = Windows(*(torch.cat(parts).clone() for parts in zip(*drafter.rounds, strict=True)))
        tokens, target = generation.tokens.clone(), self.target
        features = target_features(target, tokens, captions)[:, :, target.prefix_len - 1 :]
        with torch.autocast(tokens.device.type, enabled=False):
            return Pool(windows, tokens, target.guide(features).clone())

    def training_step(self, batch: dict, batch_idx: int) -> Tensor:
        number = batches_before(self)
        if not self._pools or number % self.steps_per_batch == 0:
            pool = self._record(batch["caption"], self.shapes[number // self.steps_per_batch % len(self.shapes)])
            self._pools = [*self._pools, pool][-self.kept_batches :]
        generator = step_generator(self.seed, number)
        pool = self._pools[number % len(self._pools)]
        chosen = torch.randint(len(pool.windows.root), (self.windows,), generator=generator)
        loss, overlap = self._lesson(pool, chosen.to(pool.tokens.device))
        self.log("train/loss", loss, prog_bar=True)
        self.log("train/overlap", overlap)
        return loss

    def _lesson(self, pool: Pool, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """-> the mean loss at the chosen windows' places that the network corrects, and the overlap of the laws where
        all guesses before are the image's."""
        target, windows = self.target, Windows(*(part[chosen] for part in pool.windows))
        count, length = windows.guesses.shape[1], pool.tokens.shape[1]
        front, ahead = self.network.front, torch.arange(count, device=chosen.device)
        places = windows.root[:, None] + ahead
        truth = F.pad(pool.tokens[windows.image], (front, 2 * count), value=target.vocab_size)
        is_right = truth.gather(1, front + places) == windows.guesses
        unseen = ahead >= windows.seen[:, None]
        corrected = ((windows.guesses != windows.read) | unseen) & (places + 1 < length)
        given = front + windows.root - 1, windows.guesses, windows.read, windows.stale
        inputs = self.network.read(self._embed_weight, truth, *given)
        added = self.network(inputs.to(self.network.fc.weight.dtype), self.network.ages(windows.seen, count))[:, 1:]
        rows = corrected.flatten().nonzero()[:, 0]
        base = windows.stale[:, 1:, : added.shape[2]].flatten(0, 1)[rows]
        at = places.flatten()[rows] + 1
        with torch.autocast(rows.device.type, enabled=False):  # as decoding runs the head
            taught = target.head(pool.features[windows.image.repeat_interleave(count)[rows], at])
            drafted = target.head(base + added.flatten(0, 1)[rows].to(base.dtype))
            scores = replace(self.sampling, top_k=0, top_p=1.0).scores(drafted)  # a loss needs log q of every code
            sites = Sites(self.sampling.law(taught), scores.log_softmax(-1))
            losses, reached = self._loss(sites), is_right.long().cumprod(1).bool().flatten()[rows]
        weights = torch.where(reached, 1.0, BEHIND_AN_ERROR)
        return (losses * weights).sum() / weights.sum(), sites.alpha.detach()[reached].mean()

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        """Tokens per step, by decoding."""
        captions = batch["caption"]
        seeds = [image_seed(0, f"validation {x}", batch_idx) for x in captions]  # one set for trainings of all seeds
        _, generation = self._decode(captions, seeds, self.validated_length, 0)
        rate = torch.tensor(generation.tokens_per_step)
        self.log("val/tokens_per_step", rate, batch_size=len(captions), prog_bar=True, sync_dist=True)
