"""Trainings of the toy world: of the VQ tokenizer (VQGAN, Esser et al. 2021, arXiv:2012.09841) by squared error, local
spectra, a patch discriminator and a codebook learned by clustering; of its decoder alone; and of the critic."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Generator, Tensor
from torch.func import functional_call

from lantern.errors import LanternError, check_least
from lantern.models.checkpoints import load_strictly, load_weights, save_weights
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.scenes import tokenizer_learning as learning
from lantern.scenes.critic import IGNORED, Critic, as_images, labels_of
from lantern.scenes.reconstruction import ReconstructionMeter, psnr
from lantern.training.data_module import step_generator
from lantern.training.optimizers import with_own_rates
from lantern.training.run.budget import progress_of
from lantern.training.run.lightning_internals import batches_before
from lantern.training.target_tasks import check_architecture

Batch = dict[str, Any]  # "image": uint8 [B, H, W, 3], "caption": B captions
REVIVE_UNTIL = 0.8  # of the run: codes reset later would not converge


class TokenizerTask(pl.LightningModule):
    """Trains the VQ tokenizer. Validation and export use the moving average of the weights."""

    def __init__(
        self, architecture: dict[str, Any], lr: float, discriminator_lr: float, discriminator_width: int,
        pixel_weight: float, texture_weight: float, adversarial_weight: float, commitment_weight: float,
        quantize_from: int, texture_from: int, discriminate_from: int, average_decay: float, seed: int,
    ) -> None:  # fmt: skip
        """`architecture`: the tokenizer's arguments; `quantize_from`, `texture_from`, `discriminate_from`: the steps at
        which k-means runs and losses are added; `adversarial_weight`: relative to the gradient of the squared error."""
        super().__init__()
        check_least("task", 0, lr=lr, discriminator_lr=discriminator_lr)
        check_least("task", 1, quantize_from=quantize_from)  # k-means needs data
        self.config = dict(architecture)
        self.tokenizer = VQTokenizer(**architecture).to(memory_format=torch.channels_last)
        learning.start_linear(self.tokenizer)
        self.tokenizer.quantize.requires_grad_(False)
        self.average = deepcopy(self.tokenizer).requires_grad_(False)
        self.discriminator = learning.PatchDiscriminator(discriminator_width).to(memory_format=torch.channels_last)
        self.codes = learning.ClusteredCodebook(architecture["codebook_size"], architecture["code_dim"])
        self.lr, self.discriminator_lr, self.seed = lr, discriminator_lr, seed
        self.pixel_weight, self.texture_weight = pixel_weight, texture_weight
        self.adversarial_weight = adversarial_weight
        self.commitment_weight, self.average_decay = commitment_weight, average_decay
        self.quantize_from, self.texture_from, self.discriminate_from = quantize_from, texture_from, discriminate_from

    def setup(self, stage: str) -> None:
        if (devices := self.trainer.world_size) > 1:  # their codebooks would diverge
            raise LanternError(f"task=tokenizer trains on one device, not on {devices}; leave trainer.devices out")

    def on_fit_end(self) -> None:
        if self.global_step <= self.quantize_from and not self.trainer.fast_dev_run:  # the codebook is still random
            raise LanternError(
                f"a training of {self.global_step} steps learns no codebook, which begins after task.quantize_from="
                f"{self.quantize_from}; give more steps, or a smaller task.quantize_from"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = [{"params": [weight for weight in self.tokenizer.parameters() if weight.requires_grad], "lr": self.lr}]
        groups += [{"params": [*self.discriminator.parameters()], "lr": self.discriminator_lr}]
        return with_own_rates(torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=1e-4, fused=True))

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None) -> None:
        for part in (self.tokenizer, self.discriminator) if gradient_clip_val else ():  # clipped separately
            torch.nn.utils.clip_grad_norm_(part.parameters(), gradient_clip_val)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        real = as_images(batch["image"]).contiguous(memory_format=torch.channels_last)
        z = self._latents(real)
        codes, commitment = self._quantized(z)
        made = (self.tokenizer.render(codes) + 1) / 2
        # squared, since of textures with the same power the absolute error prefers scattered dots
        loss = pixels = self.pixel_weight * F.mse_loss(made, real)
        if self.global_step >= self.texture_from:
            loss = loss + self.texture_weight * self._log("texture", learning.texture_loss(made, real))
        if self.global_step >= self.discriminate_from:
            loss = loss + self._adversarial(pixels, made, real)
        self._log("psnr", psnr(made.detach(), real).mean())
        return loss + self.commitment_weight * self._log("commitment", commitment)

    def _latents(self, real: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, h, w, C]
        return self.tokenizer.latents(real)

    def _quantized(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The codes nearest to z [B, h, w, C], with straight-through gradients, and the commitment loss."""
        flat, quantize = rearrange(z.detach(), "b h w c -> (b h w) c"), self.tokenizer.quantize
        if self.global_step < self.quantize_from:
            self.codes.collect(flat)
            return z, z.new_zeros(())
        generator = step_generator(self.seed, batches_before(self))
        if not self.codes.sums.any():  # the first step with codes
            self.codes.start(quantize.embedding.weight, generator)
        with torch.no_grad():
            tokens = quantize.nearest(flat)
            chosen = F.embedding(tokens, quantize.codebook).view_as(z)
            revive = progress_of(self.trainer) < REVIVE_UNTIL
            moved = self.codes.update(quantize.embedding.weight, flat, tokens, generator, revive)
        self._log("codes_revived", moved.float().sum())
        return z + (chosen - z).detach(), (chosen - z).square().mean()

    def _adversarial(self, pixels: Tensor, made: Tensor, real: Tensor) -> Tensor:
        """The sum of the tokenizer's and the discriminator's losses; neither has a gradient at the other's weights."""
        frozen = {name: weight.detach() for name, weight in self.discriminator.named_parameters()}
        offset = torch.randint(learning.STRIDE, (2,), generator=step_generator(self.seed, batches_before(self)))
        ours, theirs = learning.crop_from(made, offset), learning.crop_from(real, offset)
        score = functional_call(self.discriminator, frozen, (ours,)).mean()
        generator_loss = learning.balance_gradient(-score, pixels, made)
        scores = self.discriminator(theirs), self.discriminator(ours.detach())
        discriminator_loss = F.relu(1 - scores[0]).mean() + F.relu(1 + scores[1]).mean()  # hinge
        return self.adversarial_weight * generator_loss + self._log("discriminator", discriminator_loss)

    def _log(self, name: str, value: Tensor) -> Tensor:
        self.log(f"train/{name}", value.detach(), prog_bar=name == "psnr")
        return value

    def optimizer_step(self, *arguments, **others) -> None:
        """The average moves within the step, before callbacks save it."""
        super().optimizer_step(*arguments, **others)
        self._move_average(self.global_step + 1)  # Lightning counts the step afterwards

    @torch.no_grad()
    def _move_average(self, steps: int) -> None:
        decay = min(self.average_decay, (1 + steps) / (10 + steps))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.tokenizer.parameters()), 1 - decay)
        codebook = self.tokenizer.quantize.embedding.weight  # already a moving average
        self.average.quantize.embedding.weight.copy_(codebook)

    def on_validation_epoch_start(self) -> None:
        self.meter = ReconstructionMeter(len(self.average.codebook))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        real = as_images(batch["image"]).contiguous(memory_format=torch.channels_last)
        with torch.autocast(real.device.type, enabled=False):  # as in use
            tokens = self.average.encode(real)
            self.meter.update(self.average.decode(tokens), real, tokens)

    def on_validation_epoch_end(self) -> None:
        for name, value in self.meter.summary().items():
            self.log(f"val/{name}", value, prog_bar=name == "psnr")

    def export(self, folder: Path) -> None:
        """Writes the weights folder that load_tokenizer reads."""
        save_weights(folder, {k: v.float() for k, v in self.average.state_dict().items()}, self.config)


class DecoderTask(TokenizerTask):
    """Trains a tokenizer's decoder and exports the whole; tokens stay, so that its targets and drafters still fit."""

    def __init__(self, start_from: str, **settings: Any) -> None:
        """start_from: the weights folder of a tokenizer of this architecture; settings: TokenizerTask's."""
        super().__init__(**settings)
        state, config = load_weights(start_from)
        for tokenizer in (self.tokenizer, self.average):
            load_strictly(tokenizer, state, start_from, "give a tokenizer of this architecture as task.start_from")
        check_architecture(start_from, self.config, config)
        for part in (self.tokenizer.encoder, self.tokenizer.quant_conv):
            part.requires_grad_(False)

    def on_fit_end(self) -> None:
        """Any number of steps will do: the codebook is learned already."""

    def _latents(self, real: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, h, w, C]
        with torch.autocast(real.device.type, enabled=False):  # as in use: rounded ones would have other tokens
            return super()._latents(real)

    def _quantized(self, z: Tensor) -> tuple[Tensor, Tensor]:
        quantize = self.tokenizer.quantize
        return F.embedding(quantize.nearest(z), quantize.codebook), z.new_zeros(())


class CriticTask(pl.LightningModule):
    """Trains the critic by the attributes' cross-entropies on augmented images, to judge content and not artefacts."""

    def __init__(self, critic: Critic, lr: float, weight_decay: float, seed: int = 0) -> None:
        super().__init__()
        check_least("task", 0, lr=lr, weight_decay=weight_decay)
        self.critic = critic
        self.lr, self.weight_decay, self.seed = lr, weight_decay, seed

    def training_step(self, batch: Batch, index: int) -> Tensor:
        generator = Generator().manual_seed((self.seed << 32) + batches_before(self))  # the same in a resumed run
        logits = self.critic(augment(as_images(batch["image"]), generator))
        labels = labels_of(batch["caption"])
        losses = [F.cross_entropy(logits[k], labels[k].to(logits[k].device), ignore_index=IGNORED) for k in logits]
        loss = torch.stack(losses).nansum()  # without any object the colour loss is NaN
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        logits = self.critic(as_images(batch["image"]))
        for name, label in labels_of(batch["caption"]).items():
            label = label.to(self.device)  # where processes exchange their means
            right = (logits[name].argmax(-1) == label)[label != IGNORED].float()
            if len(right):
                self.log(f"val/{name}_accuracy", right.mean(), batch_size=len(right), prog_bar=True, sync_dist=True)

    def export(self, folder: Path) -> None:
        """Writes the weights folder that load_critic reads."""
        save_weights(folder, self.critic.state_dict(), self.critic.config)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.AdamW(self.critic.parameters(), self.lr, weight_decay=self.weight_decay)
        return with_own_rates(optimizer)


def augment(images: Tensor, generator: Generator) -> Tensor:  # [B, 3, H, W] in [0, 1] -> the same
    """Blur or sharpening, exposure and noise drawn per image; one shift per batch."""

    def amounts(low: float, high: float) -> Tensor:  # [B, 1, 1, 1]
        return (low + (high - low) * torch.rand(len(images), 1, 1, 1, generator=generator)).to(images.device)

    shift = torch.randint(-8, 9, (2,), generator=generator).tolist()
    padded = F.pad(images, (8, 8, 8, 8), mode="reflect")
    images = padded[..., 8 + shift[0] :, 8 + shift[1] :][..., : images.shape[-2], : images.shape[-1]]
    blurred = F.avg_pool2d(images, 5, stride=1, padding=2, count_include_pad=False)
    images = images + amounts(-0.4, 0.8) * (blurred - images)
    noise = torch.randn(images.shape, generator=generator).to(images.device)
    return (images * amounts(0.9, 1.1) + amounts(0, 0.06) * noise).clamp(0, 1)
