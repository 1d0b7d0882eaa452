"""Scores of images and prompts by a network for both: CLIP score (2104.08718), PickScore, HPSv2, ImageReward. The
network is an argument, and so is the name of the row keys."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lantern.errors import LanternError, is_whole
from lantern.metrics.extraction import network_hash
from lantern.metrics.intervals import Interval, bootstrap
from lantern.metrics.tensor_memo import TensorMemo

AT_ONCE = 32


class Scorer(Protocol):
    """A network with local weights."""

    resize: str

    def scores(self, images: Tensor, prompts: Sequence[str]) -> Tensor: ...  # [B, 3, H, W] in [0, 1] -> [B]


class ImageTextScore:
    """Mean score of an image and its prompt, and its loss against AR's images; bounds by a bootstrap over images."""

    def __init__(self, name: str, network: Scorer, resamples: int = 1000) -> None:
        """name: of the row's keys, <name>_score and <name>_score_loss."""
        if not is_whole(resamples) or resamples < 1:
            raise LanternError(f"metrics.{name}_score.resamples={resamples}: give a whole number from 1 on")
        self.name, self.network, self.resamples = f"{name}_score", network, resamples
        self._scores = TensorMemo(self._score)
        self._hash = network_hash(network)

    def prepare(self, prompts: Sequence[str]) -> None:
        """Accepts any prompts."""

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        return self._interval(self._scores(images, prompts)).keys(self.name)

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """AR's score less the method's, a prompt's two images resampled together."""
        lost = self._scores(plain, prompts) - self._scores(images, prompts)
        return self._interval(lost).keys(f"{self.name}_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {f"{self.name}_network": self._hash, f"{self.name}_resize": self.network.resize}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []

    def _score(self, images: Tensor, prompts: Sequence[str]) -> np.ndarray:  # [N]
        starts = range(0, len(images), AT_ONCE)
        parts = [self.network.scores(images[i : i + AT_ONCE], prompts[i : i + AT_ONCE]) for i in starts]
        return torch.cat(parts).double().cpu().numpy()

    def _interval(self, values: np.ndarray) -> Interval:
        return Interval(float(values.mean()), *bootstrap(values, samples=self.resamples))
