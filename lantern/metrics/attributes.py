"""Prompt accuracy as a metric of an evaluation: the shares of images that show what was asked for, with bounds."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from lantern.metrics.extraction import network_hash
from lantern.metrics.intervals import Interval, loss_interval, share_bounds
from lantern.metrics.prompt_accuracy import Judge, judge_images
from lantern.models.critic import labels_of


class AttributeAccuracy:
    """texture, shape, colour (of the images that should show an object), and all of them at once."""

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
        """texture_accuracy_loss … all_accuracy_loss: by how much the share falls from AR's images of the
        same prompts and seeds."""
        same = (images == plain).flatten(1).all(1)
        found, before = (judge_images(self.critic, made, prompts) for made in (images, plain))
        values: dict[str, float] = {}
        for name, right in found.items():
            asked = ~right.isnan()
            pair = (answers[name][asked].numpy() for answers in (before, found))
            lost = loss_interval(*pair, same[asked].numpy()) if bool(asked.any()) else Interval(*[np.nan] * 3)
            values |= lost.keys(f"{name}_accuracy_loss")
        return values

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {"critic_hash": network_hash(self.critic)}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []
