"""Scores of images and prompts by a network for both: CLIP score (2104.08718), PickScore, HPSv2."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lantern.metrics.extraction import TensorMemo, network_hash
from lantern.metrics.intervals import mean_interval
from lantern.metrics.metric import Metric
from lantern.metrics.networks import Clip

BATCH_SIZE = 32


class ImageTextScore(Metric):
    """Mean score of an image and its prompt, and its loss against AR's images; bounds by a bootstrap over images."""

    def __init__(self, name: str, network: Clip) -> None:
        """name: of the row's keys, <name>_score and <name>_score_loss."""
        self.name, self.network = f"{name}_score", network
        self._scores = TensorMemo(self._score)
        self._hash = network_hash(network)

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        return mean_interval(self._scores(images, prompts)).keys(self.name)

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """AR's score less the method's, a prompt's two images resampled together."""
        lost = self._scores(plain, prompts) - self._scores(images, prompts)
        return mean_interval(lost).keys(f"{self.name}_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {f"{self.name}_network": self._hash, f"{self.name}_resize": self.network.resize}

    def _score(self, images: Tensor, prompts: Sequence[str]) -> np.ndarray:  # [N]
        starts = range(0, len(images), BATCH_SIZE)
        parts = [self.network.scores(images[i : i + BATCH_SIZE], prompts[i : i + BATCH_SIZE]) for i in starts]
        return torch.cat(parts).double().cpu().numpy()
