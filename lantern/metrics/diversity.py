"""Diversity: how much images of one prompt differ, which distances to real images hardly show."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lantern.metrics.extraction import extract_features, network_hash, register_extractor
from lantern.metrics.intervals import Interval, bootstrap


class Diversity:
    """Mean distance of features between images of the same prompt, averaged over prompts; prompts with a single image
    are left out."""

    def __init__(self, extractor: nn.Module) -> None:
        """extractor.features: images [N, 3, H, W] in [0, 1] -> [N, F]"""
        self.network, self.extractor = extractor, register_extractor(extractor)

    def prepare(self, prompts: Sequence[str]) -> None:
        """Accepts any prompts."""

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        found = self._by_prompt(images, prompts)
        return Interval(_mean(found), *bootstrap(found, samples=500)).keys("diversity")

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """diversity_loss: AR's less the method's, a prompt's two values resampled together."""
        lost = self._by_prompt(plain, prompts) - self._by_prompt(images, prompts)
        return Interval(_mean(lost), *bootstrap(lost, samples=500)).keys("diversity_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {"diversity_extractor": network_hash(self.network)}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []

    def _by_prompt(self, images: Tensor, prompts: Sequence[str]) -> np.ndarray:
        features = extract_features(images, self.extractor)
        indices = defaultdict(list)
        for index, prompt in enumerate(prompts):
            indices[prompt].append(index)
        return np.array([float(torch.pdist(features[own]).mean()) for own in indices.values() if len(own) > 1])


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
