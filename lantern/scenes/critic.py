"""What judges images of scenes: the critic, a small convolutional classifier of texture, shape and colour, trained on
real scenes only and used in no loss; prompt accuracy by its answers; and real images for the fidelity metrics."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from lantern.data.image_sets import Images, batches
from lantern.errors import LanternError
from lantern.identity import state_hash
from lantern.metrics.intervals import Interval, loss_interval, share_bounds
from lantern.metrics.metric import Metric
from lantern.models.checkpoints import CONFIG_FILE, load_described, load_weights
from lantern.runtime.files import is_file
from lantern.runtime.hardware import resolve_device
from lantern.scenes.captions import COLOURS, SHAPES, TEXTURES, parse_caption
from lantern.scenes.rendering import SPLITS, render_caption

ATTRIBUTES = {"texture": TEXTURES, "shape": SHAPES, "colour": COLOURS}
NUM_FEATURES = 64
REMEDY = "train it again with `python train.py task=critic`"
IGNORED = -100  # the colour label of a bare texture
FIRST_REFERENCE = SPLITS["test"].start + 500_000_000  # far from the test scenes whose captions are the prompts
Judge = Callable[[Tensor], dict[str, Tensor]]  # images [B, 3, H, W] in [0, 1] -> logits [B, classes] by attribute


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


def labels_of(captions: Sequence[str]) -> dict[str, Tensor]:
    """Class numbers [B] by attribute, IGNORED for the colour of a bare texture; LanternError for an unknown caption."""
    scenes = [parse_caption(caption) for caption in captions]
    labels = {}
    for name, words in ATTRIBUTES.items():
        numbers = {word: number for number, word in enumerate(words)}
        labels[name] = torch.tensor([numbers.get(getattr(scene, name), IGNORED) for scene in scenes])
    return labels


def as_images(pixels: Tensor) -> Tensor:
    """uint8 [B, H, W, 3] -> [B, 3, H, W] in [0, 1]."""
    return rearrange(pixels, "b h w c -> b c h w").float() / 255


def load_critic(folder: str | Path, device: str = "cpu") -> Critic:
    """The critic of a weights folder, in evaluation mode; device: as resolve_device reads it."""
    if not is_file(Path(folder) / CONFIG_FILE):
        raise LanternError(
            f"no critic is in {folder}: the shipped one knows the embedded scenes alone; give metrics=[pairs], or "
            "Inception's metrics with real images of your own (docs/evaluating.md), or quality.num_images=0"
        )
    state, config = load_weights(folder)
    return load_described(Critic, config, state, folder, REMEDY).eval().requires_grad_(False).to(resolve_device(device))


class PromptAccuracy(Metric):
    """The shares of images that show what their prompt asks for, by the critic's answers: texture, shape, colour (of
    the images that should show an object), and all three at once."""

    def __init__(self, critic: Judge) -> None:
        self.critic = critic

    def prepare(self, prompts: Sequence[str]) -> None:
        labels_of(prompts)

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        """The share and its 95 % bounds by attribute; nan where none was asked for."""
        values: dict[str, float] = {}
        for name, right in judge_images(self.critic, images, prompts).items():
            judged = right[~right.isnan()]
            share = float(judged.mean()) if len(judged) else float("nan")
            values |= Interval(share, *share_bounds(share, len(judged))).keys(f"{name}_accuracy")
        return values

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """texture_accuracy_loss … all_accuracy_loss: AR's share less the method's, of the same prompts and seeds."""
        method, ar = (judge_images(self.critic, of, prompts) for of in (images, plain))
        values: dict[str, float] = {}
        for name, right in method.items():
            asked = ~right.isnan()
            pair = (answers[name][asked].numpy() for answers in (ar, method))
            loss = loss_interval(*pair) if bool(asked.any()) else Interval(*[np.nan] * 3)
            values |= loss.keys(f"{name}_accuracy_loss")
        return values

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {"critic_hash": state_hash(self.critic)}


@torch.inference_mode()
def judge_images(critic: Judge, images: Images, captions: Sequence[str], batch_size: int = 64) -> dict[str, Tensor]:
    """Right or wrong [B], as 1.0 or 0.0, for texture, shape, colour and all; nan where no colour is asked for."""
    labels = labels_of(captions)
    logits = [critic(chunk) for chunk in batches(images, batch_size)]
    answers = {name: torch.cat([part[name].argmax(-1).cpu() for part in logits]) for name in labels}
    right = {name: (answers[name] == label).double() for name, label in labels.items()}
    right["colour"][labels["colour"] == IGNORED] = torch.nan
    right["all"] = torch.stack([verdict.nan_to_num(nan=1.0) for verdict in right.values()]).amin(0)
    return right


def scene_references(prompts: Sequence[str], count: int) -> Tensor:
    """Real images [count, 3, H, W] in [0, 1]: scenes of the first `count` prompts, cycling, of seeds of their own."""
    try:
        scenes = [render_caption(prompts[i % len(prompts)], FIRST_REFERENCE + i) for i in range(count)]
    except LanternError as error:
        raise LanternError(
            f"{error}; for other prompts give metrics.fidelity.references.path=<module.function>, a function (prompts, "
            "count) -> [N, 3, H, W], or 'metrics=[diversity,pairs]', or quality.num_images=0"
        ) from error
    return torch.from_numpy(np.stack(scenes)).permute(0, 3, 1, 2).float() / 255
