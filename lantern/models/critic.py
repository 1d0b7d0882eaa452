"""The critic: a small convolutional classifier of a scene's texture, shape and colour, trained on real scenes only and
used in no loss. Its 64 features serve the Fréchet and kernel distances."""

from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.data.captions import COLOURS, SHAPES, TEXTURES, parse_caption
from lantern.errors import CheckpointError
from lantern.models.checkpoints import described, load_strictly, load_weights
from lantern.runtime.hardware import resolve_device

ATTRIBUTES = {"texture": TEXTURES, "shape": SHAPES, "colour": COLOURS}
NUM_FEATURES = 64
REMEDY = "train it again with `python train.py task=critic`"
IGNORED = -100  # the colour label of a bare texture


class Critic(nn.Module):
    """Five convolutions of stride 2, one over the remaining 4 x 4 (for scenes), one linear head per attribute."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.config = {"width": width, "size": size}
        widths = [3, width, 2 * width, 3 * width, 3 * width, 3 * width]
        stages = [_stage(before, after, 3, stride=2, padding=1) for before, after in pairwise(widths)]
        self.trunk = nn.Sequential(*stages, _stage(widths[-1], NUM_FEATURES, size // 2 ** len(stages)), nn.Flatten())
        self.heads = nn.ModuleDict({name: nn.Linear(NUM_FEATURES, len(words)) for name, words in ATTRIBUTES.items()})

    def features(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, 64]
        """Of images from any device. Resizes them to the training size first, for models of other resolutions."""
        images, size = images.to(self.heads["texture"].weight.device), (self.config["size"],) * 2
        if images.shape[-2:] != size:
            images = F.interpolate(images, size, mode="bicubic", antialias=True).clamp(0, 1)
        return self.trunk((images * 2 - 1).contiguous(memory_format=torch.channels_last))

    def forward(self, images: Tensor) -> dict[str, Tensor]:  # [B, 3, H, W] -> logits [B, classes] by attribute
        features = self.features(images)
        return {name: head(features) for name, head in self.heads.items()}


def _stage(before: int, after: int, kernel: int, **options: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, kernel, bias=False, **options), nn.BatchNorm2d(after), nn.GELU())


def labels_of(captions: list[str]) -> dict[str, Tensor]:
    """Class numbers [B] by attribute, IGNORED for the colour of a bare texture; LanternError for an unknown caption."""
    scenes = [parse_caption(caption) for caption in captions]
    return {name: torch.tensor([_label(scene, name) for scene in scenes]) for name in ATTRIBUTES}


def _label(scene: tuple, name: str) -> int:
    word = getattr(scene, name)
    return ATTRIBUTES[name].index(word) if word in ATTRIBUTES[name] else IGNORED


def as_images(pixels: Tensor) -> Tensor:
    """uint8 [B, H, W, 3] -> [B, 3, H, W] in [0, 1]."""
    return rearrange(pixels, "b h w c -> b c h w").float() / 255


def load_critic(folder: str | Path, device: str = "cpu") -> Critic:
    """The critic of a weights folder, in evaluation mode; device: as resolve_device reads it. Raises CheckpointError if
    its files are missing or corrupt."""
    state, config = load_weights(folder)
    if set(config) != {"width", "size"}:
        raise CheckpointError(f"the config of {folder} is {config}, not a critic's width and size; {REMEDY}")
    critic = described(Critic, config, folder, REMEDY)
    load_strictly(critic, state, folder, REMEDY)
    return critic.eval().requires_grad_(False).to(resolve_device(device))
