"""Prompt accuracy: the shares of images that show what their prompt asks for, by the critic's answers."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lantern.metrics.extraction import network_hash
from lantern.metrics.intervals import Interval, loss_interval, share_bounds
from lantern.models.critic import IGNORED, labels_of

Judge = Callable[[Tensor], dict[str, Tensor]]  # images [B, 3, H, W] in [0, 1] -> logits [B, classes] by attribute


class PromptAccuracy:
    """Of texture, shape, colour (of the images that should show an object), and of all three at once."""

    def __init__(self, critic: Judge) -> None:
        self.critic = critic

    def prepare(self, prompts: Sequence[str]) -> None:
        """LanternError for a prompt that names no scene."""
        labels_of(list(prompts))

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """images [N, 3, H, W] in [0, 1] -> the share and its 95 % bounds by attribute; nan where none was asked for."""
        values: dict[str, float] = {}
        for name, right in judge_images(self.critic, images, prompts).items():
            judged = right[~right.isnan()]
            share = float(judged.mean()) if len(judged) else float("nan")
            values |= Interval(share, *share_bounds(share, len(judged))).keys(f"{name}_accuracy")
        return values

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """texture_accuracy_loss … all_accuracy_loss: AR's share less the method's, of the same prompts and seeds."""
        found, before = (judge_images(self.critic, made, prompts) for made in (images, plain))
        values: dict[str, float] = {}
        for name, right in found.items():
            asked = ~right.isnan()
            pair = (answers[name][asked].numpy() for answers in (before, found))
            lost = loss_interval(*pair) if bool(asked.any()) else Interval(*[np.nan] * 3)
            values |= lost.keys(f"{name}_accuracy_loss")
        return values

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {"critic_hash": network_hash(self.critic)}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []


@torch.inference_mode()
def judge_images(critic: Judge, images: Tensor, captions: Sequence[str], batch_size: int = 64) -> dict[str, Tensor]:
    """Right or wrong [B], as 1.0 or 0.0, for texture, shape, colour and all; nan where no colour is asked for.

    images [B, 3, H, W] in [0, 1]. Raises LanternError for a caption that names no scene.
    """
    labels = labels_of(list(captions))
    logits = [critic(chunk) for chunk in images.split(batch_size)]
    answers = {name: torch.cat([part[name].argmax(-1).cpu() for part in logits]) for name in labels}
    right = {name: (answers[name] == label).double() for name, label in labels.items()}
    right["colour"][labels["colour"] == IGNORED] = torch.nan
    right["all"] = torch.stack([verdict.nan_to_num(nan=1.0) for verdict in right.values()]).amin(0)
    return right
