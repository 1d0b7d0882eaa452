"""Trains the target: next-token cross-entropy with caption dropout for guidance (Sun et al., 2406.06525).
Token embeddings and head are initialised from the tokenizer's codebook, so that similar codes start similar."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.continuous.continuous_transformer import ContinuousTransformer
from lantern.continuous.target import transformer_of
from lantern.data.splits import Splits
from lantern.errors import LanternError, check_whole
from lantern.identity import DIGITS
from lantern.models.checkpoints import load_strictly, load_weights, save_weights, weights_hash
from lantern.models.conditioners import SCENE_WORDS, words_of
from lantern.models.llamagen import weights_folder
from lantern.models.llamagen.transformer import Transformer
from lantern.training.data_module import batch_uniform, step_generator
from lantern.training.optimizers import matrices, muon_with_adamw
from lantern.training.run.lightning_internals import batches_before

EMBEDDING_STD = 0.02
READS = {"tokens_hash": "tokens", "vocabulary": "words", "word_seed": "word vectors"}  # of a target's config


class TargetTask(pl.LightningModule):
    """Batches: {"tokens": [B, L], "caption": B captions}."""

    def __init__(
        self, architecture: dict[str, Any], vocabulary: Sequence[str], word_seed: int, tokenizer: str, lr: float,
        muon_lr: float, weight_decay: float, caption_dropout: float, seed: int, start_from: str | None = None,
    ) -> None:  # fmt: skip
        """`architecture`: the transformer's arguments without vocab_size; `vocabulary`: the words of captions;
        `tokenizer`: its weights folder; `start_from`: weights folder of a target of the same architecture to train
        further; its vocabulary is kept if it contains all of `vocabulary`."""
        super().__init__()
        images = weights_folder.load_tokenizer(tokenizer)
        codebook = images.codebook
        state, config = ({}, {}) if start_from is None else load_weights(start_from)
        known = config.get("vocabulary", [])
        self.config = {
            "architecture": architecture | {"vocab_size": len(codebook)},
            "vocabulary": known if set(vocabulary) <= set(known) else list(vocabulary),
            "word_seed": word_seed,
            "tokens_hash": weights_folder.tokens_hash(images),
        }
        self.transformer = Transformer(**self.config["architecture"])
        self.reads = self.conditioner = weights_folder.conditioner_of(self.config)
        self.lr, self.muon_lr, self.weight_decay = lr, muon_lr, weight_decay
        self.caption_dropout, self.seed = caption_dropout, seed
        if start_from is None:
            start_from_codebook(self.transformer, codebook, step_generator(seed, 0))
        else:
            config = config | {"tokens_hash": config.get("tokens_hash", self.config["tokens_hash"])[:DIGITS]}
            if other := [what for key, what in READS.items() if config.get(key, self.config[key]) != self.config[key]]:
                raise LanternError(f"task.start_from={start_from} was trained with other {other[0]}; give one of these")
            load_strictly(self.transformer, state, start_from, "give a target of this architecture as task.start_from")
            check_architecture(start_from, self.config["architecture"], config.get("architecture", {}))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        hidden = matrices(self.transformer.layers)
        return muon_with_adamw(self.transformer, hidden, self.lr, self.muon_lr, self.weight_decay)

    def training_step(self, batch: dict, batch_idx: int) -> Tensor:
        process = self.global_rank, self.trainer.world_size, "cpu"
        number = batches_before(self) + 1  # 0 is the initialisation's
        dropped = batch_uniform(len(batch["tokens"]), (), self.seed, number, *process) < self.caption_dropout
        logits = self._logits(batch["tokens"], batch["caption"], dropped)
        loss = F.cross_entropy(logits.flatten(0, 1), batch["tokens"].flatten())
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        tokens = batch["tokens"]
        law = self._logits(tokens, batch["caption"], torch.zeros(len(tokens), dtype=torch.bool)).log_softmax(-1)
        size = len(tokens)
        self.log("val/loss", F.nll_loss(law.flatten(0, 1), tokens.flatten()), batch_size=size, prog_bar=True)
        self.log("val/top1", law.amax(-1).exp().mean(), batch_size=size, prog_bar=True)

    def _logits(self, tokens: Tensor, captions: Sequence[str], dropped: Tensor) -> Tensor:  # -> [B, L, V] float32
        if tokens.shape[1] != self.transformer.num_tokens:
            raise LanternError(
                f"images of {tokens.shape[1]} tokens do not fill task.architecture.grid={list(self.transformer.grid)}; "
                "give images of that many tokens (data.size), or their grid"
            )
        condition, visible = (part.to(tokens.device) for part in self.conditioner(captions))
        features = self.transformer(tokens, condition, visible, dropped.to(tokens.device))
        return self.transformer.output(features).float()

    def export(self, folder: Path) -> None:
        """Writes the weights folder for load_target, in half precision, which does not change sampling noticeably."""
        state = {name: value.half() for name, value in self.transformer.state_dict().items()}
        save_weights(folder, state, self.config)


def check_architecture(start_from: str, wanted: Mapping[str, object], found: Mapping[str, object]) -> None:
    """Refuses weights of another architecture that has the same shapes, such as another number of heads."""
    if {**wanted, **found} != wanted:
        raise LanternError(f"task.start_from={start_from} has other layers than task.architecture; give one of those")


def words_of_data(images: Splits) -> list[str]:
    """The words of all captions, of training and validation: the embedded scenes' in their own order, others sorted."""
    words = words_of(chain(images.split("train").captions, images.split("validation").captions))
    return list(SCENE_WORDS) if words <= set(SCENE_WORDS) else sorted(words)


@torch.no_grad()
def start_from_codebook(transformer: Transformer, codebook: Tensor, generator: torch.Generator) -> None:
    """Sets embedding and head to a random rotation of the unit codes [V, C], scaled, plus noise for equal codes."""
    codes = F.normalize(codebook.detach().float(), dim=-1)
    for weight in (transformer.tok_embeddings.weight, transformer.output.weight):
        dim = weight.shape[1]
        basis = torch.linalg.qr(torch.randn(dim, codes.shape[1], generator=generator)).Q.T  # [C, D], orthonormal rows
        noise = torch.randn(weight.shape, generator=generator)
        weight.copy_(EMBEDDING_STD * (dim**0.5 * codes @ basis + 0.3 * noise))


NOISE_SEED = 1  # beside the seed of caption dropout


class ContinuousTargetTask(pl.LightningModule):
    """Batches: {"tokens": latents [B, L, C], "caption": B captions}."""

    def __init__(
        self, base: str, trained_layers: int, head: Mapping[str, int], tokenizer: str, draws: int, lr: float,
        muon_lr: float, weight_decay: float, caption_dropout: float, seed: int,
    ) -> None:  # fmt: skip
        """base: weights folder of a discrete target; its upper `trained_layers` layers are trained further; head: sizes
        of the diffusion head; tokenizer: its weights folder; draws: timesteps drawn per token."""
        super().__init__()
        discrete, config = weights_folder.load_transformer(base)
        check_whole("task", 0, len(discrete.layers), trained_layers=trained_layers)
        images = weights_folder.tokenizer_of(config, base, tokenizer)
        codebook = images.codebook
        mean, std = codebook.mean(0).tolist(), codebook.std(0).tolist()  # codes are as dense as latents
        self.config = config | {
            "tokens_hash": weights_folder.tokens_hash(images), "base_hash": weights_hash(base),
            "trained_layers": trained_layers, "head": dict(head), "mean": mean, "std": std,
        }  # fmt: skip
        self.reads = self.conditioner = weights_folder.conditioner_of(config)
        self.transformer = transformer_of(self.config, codebook)
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
        number, rank, processes = batches_before(self), self.global_rank, self.trainer.world_size
        coins = batch_uniform(len(batch["tokens"]), (), self.seed, number, rank, processes, "cpu")
        noise = step_generator(self.seed + NOISE_SEED, number * processes + rank)
        loss = self._loss(batch, coins < self.caption_dropout, noise)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        size = len(batch["tokens"])
        loss = self._loss(batch, torch.zeros(size, dtype=torch.bool), step_generator(0, batch_idx))  # of all seeds
        self.log("val/loss", loss, batch_size=size, prog_bar=True)

    def _loss(self, batch: dict, dropped: Tensor, noise: torch.Generator) -> Tensor:
        tokens = self.transformer.tok_embeddings.standardisation(batch["tokens"])
        captions: Sequence[str] = batch["caption"]
        condition, visible = (part.to(tokens.device) for part in self.conditioner(captions))
        features = self.transformer(tokens, condition, visible, dropped.to(tokens.device))
        return self.transformer.output.loss(features.flatten(0, 1), tokens.flatten(0, 1), noise, self.draws)

    def export(self, folder: Path) -> None:
        """Writes the folder for load_continuous_target: the weights not shared with the base, in half precision."""
        state = self.transformer.state_dict()
        own = {name: value.half() for name, value in state.items() if not self.transformer.is_shared(name)}
        save_weights(folder, own, self.config)


def start_from_discrete(transformer: ContinuousTransformer, discrete: Transformer) -> None:
    """Copies all weights of the discrete target except its output layer, and freezes the shared ones."""
    same = {name: value for name, value in discrete.state_dict().items() if not name.startswith("output.")}
    transformer.load_state_dict(transformer.state_dict() | same)
    for name, parameter in transformer.named_parameters():
        parameter.requires_grad_(not transformer.is_shared(name))
