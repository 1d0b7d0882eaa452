"""Trains a target of continuous tokens on top of a discrete one: the diffusion head's loss at several timesteps of each
token (MAR, 2406.11838), with caption dropout for guidance. Embeddings and lower layers stay the base's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lantern.continuous.continuous_transformer import ContinuousTransformer
from lantern.continuous.target import transformer_of
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.models.llamagen.transformer import Transformer
from lantern.models.llamagen.weights_folder import conditioner_of, load_transformer, tokenizer_of, tokens_hash
from lantern.training.optimizers import matrices, muon_with_adamw
from lantern.training.randomness import batch_uniform, step_generator

NOISE_SEED = 1  # beside the seed of caption dropout


class ContinuousTargetTask(pl.LightningModule):
    """Batches: {"tokens": latents [B, L, C], "caption": B captions}."""

    def __init__(
        self, base: str, trained_layers: int, head: Mapping[str, int], tokenizer: str, draws: int, lr: float,
        muon_lr: float, weight_decay: float, caption_dropout: float, seed: int,
    ) -> None:  # fmt: skip
        """base: the weights folder of a discrete target, of which the upper `trained_layers` are trained further;
        head: sizes of the diffusion head; tokenizer: its weights folder; draws: timesteps for each token."""
        super().__init__()
        discrete, config = load_transformer(base)
        images = tokenizer_of(config, base, tokenizer)
        codebook = images.codebook
        mean, std = codebook.mean(0).tolist(), codebook.std(0).tolist()  # codes are as dense as latents
        self.config = config | {
            "tokens_hash": tokens_hash(images), "base_hash": weights_hash(base),
            "trained_layers": trained_layers, "head": dict(head), "mean": mean, "std": std,
        }  # fmt: skip
        self.conditioner, self.transformer = conditioner_of(config), transformer_of(self.config, codebook)
        start_from_discrete(self.transformer, discrete)
        self.draws, self.lr, self.muon_lr, self.weight_decay = draws, lr, muon_lr, weight_decay
        self.caption_dropout, self.seed = caption_dropout, seed

    def configure_optimizers(self) -> torch.optim.Optimizer:
        model = self.transformer
        upper = model.layers[len(model.layers) - model.trained_layers :]
        trained = nn.ModuleList([*upper, model.norm, model.output])
        hidden = [*matrices(upper), *matrices(model.output.blocks)]
        return muon_with_adamw(trained, hidden, self.lr, self.muon_lr, self.weight_decay)

    def training_step(self, batch: dict, batch_idx: int) -> Tensor:
        rank, processes = self.global_rank, self.trainer.world_size
        coins = batch_uniform(len(batch["tokens"]), (), self.seed, self.global_step, rank, processes, "cpu")
        noise = step_generator(self.seed + NOISE_SEED, self.global_step * processes + rank)
        loss = self._loss(batch, coins < self.caption_dropout, noise)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        size = len(batch["tokens"])
        loss = self._loss(batch, torch.zeros(size, dtype=torch.bool), step_generator(self.seed, batch_idx))
        self.log("val/loss", loss, batch_size=size, prog_bar=True)

    def _loss(self, batch: dict, dropped: Tensor, noise: torch.Generator) -> Tensor:
        tokens = self.transformer.tok_embeddings.standardisation(batch["tokens"])
        captions: Sequence[str] = batch["caption"]
        condition, visible = (part.to(tokens.device) for part in self.conditioner(captions))
        features = self.transformer(tokens, condition, visible, dropped.to(tokens.device))
        return self.transformer.output.loss(features.flatten(0, 1), tokens.flatten(0, 1), noise, self.draws)

    def export(self, folder: Path) -> None:
        """Writes the weights folder that load_continuous_target reads: what is not the base's, in half precision."""
        state = self.transformer.state_dict()
        own = {name: value.half() for name, value in state.items() if not self.transformer.is_shared(name)}
        save_weights(folder, own, self.config)


def start_from_discrete(transformer: ContinuousTransformer, discrete: Transformer) -> None:
    """Copies what the two have in common, and freezes what they share."""
    same = {name: value for name, value in discrete.state_dict().items() if not name.startswith("output.")}
    transformer.load_state_dict(transformer.state_dict() | same)
    for name, parameter in transformer.named_parameters():
        parameter.requires_grad_(not transformer.is_shared(name))
