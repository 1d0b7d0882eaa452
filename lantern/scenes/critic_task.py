"""Trains the critic to classify scene attributes under augmentation (blur, sharpening, noise, shift, exposure), so that
it judges the content of generated images and not their artefacts."""

from pathlib import Path

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from lantern.models.checkpoints import save_weights
from lantern.scenes.critic import IGNORED, Critic, as_images, labels_of
from lantern.training.optimizers import with_own_rates

Batch = dict[str, Tensor | list[str]]  # "image": uint8 [B, H, W, 3], "caption": B captions


class CriticTask(pl.LightningModule):
    """Cross-entropy, summed over the attributes; AdamW."""

    def __init__(self, critic: Critic, lr: float, weight_decay: float, seed: int = 0) -> None:
        super().__init__()
        self.critic = critic
        self.lr, self.weight_decay, self.seed = lr, weight_decay, seed

    def training_step(self, batch: Batch, index: int) -> Tensor:
        generator = Generator().manual_seed((self.seed << 32) + self.global_step)  # the same in a resumed run
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
