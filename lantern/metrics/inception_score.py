"""Inception score (1606.03498) by torch-fidelity: high where every image has a confident class and the classes vary. It
grows with N; compare at equal N only."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, isc_features_to_metric

from lantern.errors import LanternError, is_whole
from lantern.metrics.extraction import extract_features, network_hash, register_extractor
from lantern.metrics.intervals import difference_interval, jackknife, prompt_groups, swapped_sides, swaps
from lantern.metrics.tensor_memo import TensorMemo

SHUFFLE = 2020  # the seed of torch-fidelity's splits
IMAGES_PER_SPLIT = 50  # with fewer the score mostly reflects their number


class Classifier(Protocol):
    """A network with local weights."""

    resize: str

    def logits(self, images: Tensor) -> Tensor: ...  # [B, 3, H, W] in [0, 1] -> [B, classes]


class Logits(nn.Module):
    """A classifier whose logits are the extracted features."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def features(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, classes]"""
        return self.network.logits(images)


class InceptionScore:
    """splits: the score is the mean over this many parts of the images; papers use 10 of 5,000 images each."""

    def __init__(self, network: Classifier, splits: int = 1, resamples: int = 200) -> None:
        for name, number in (("splits", splits), ("resamples", resamples)):
            if not is_whole(number) or number < 1:
                raise LanternError(f"metrics.inception_score.{name}={number}: give a whole number from 1 on")
        self.splits, self.resamples = splits, resamples
        self._resize, self._hash = network.resize, network_hash(network)
        extractor = register_extractor(Logits(network))
        self._logits = TensorMemo(lambda images: extract_features(images, extractor))

    def prepare(self, prompts: Sequence[str]) -> None:
        """LanternError for fewer than two images a split."""
        if len(prompts) < 2 * self.splits:
            raise LanternError(
                f"quality.num_images={len(prompts)} is too few for {self.splits} splits of an Inception score; use at "
                f"least {2 * self.splits}"
            )

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        logits = self._logits(images)
        parts = self._parts(len(logits))
        return jackknife(
            lambda kept: self._score(logits, [part[np.isin(part, kept)] for part in parts]), prompt_groups(prompts)
        ).keys("inception_score")

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """inception_score_loss: AR's less the method's."""
        made, before = self._logits(images), self._logits(plain)
        both = torch.cat([made, before])
        swap = swaps(len(made), self.resamples) & ~(made == before).all(1)  # equal pairs stay: no rounding noise
        parts = self._parts(len(made))
        moved = [
            self._score(both[b], parts) - self._score(both[a], parts) for a, b in zip(*swapped_sides(swap), strict=True)
        ]
        lost = self._score(before, parts) - self._score(made, parts)
        return difference_interval(lost, np.array(moved)).keys("inception_score_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {
            "inception_score_network": self._hash,
            "inception_score_resize": self._resize,
            "inception_score_splits": self.splits,
        }

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        if len(prompts) >= IMAGES_PER_SPLIT * self.splits:
            return []
        return [f"an Inception score of {len(prompts)} images mostly reflects their number; compare it at equal N only"]

    def _parts(self, count: int) -> list[np.ndarray]:
        """The images of each split, as torch-fidelity shuffles them. They stay in it when others are left out: another
        partition moves the score as well."""
        order = np.random.RandomState(SHUFFLE).permutation(count)
        return [order[i * count // self.splits : (i + 1) * count // self.splits] for i in range(self.splits)]

    def _score(self, logits: Tensor, parts: Sequence[np.ndarray]) -> float:
        """The mean over the parts, those without images left out."""
        scores = [isc_features_to_metric(logits[part], splits=1)[KEY_METRIC_ISC_MEAN] for part in parts if len(part)]
        return float(np.mean(scores))
