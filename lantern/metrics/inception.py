"""Inception score (1606.03498): high where every image has a confident class and the classes vary. Its network, which
the FID uses as well (1706.08500), is torch-fidelity's, from a local file of its weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3, FeatureExtractorInceptionV3
from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, isc_features_to_metric

from lantern.data.image_sets import Images
from lantern.errors import CheckpointError, LanternError, check_whole, explaining
from lantern.identity import state_hash
from lantern.metrics.intervals import difference_interval, jackknife, prompt_groups, swapped_sides, swaps
from lantern.metrics.metric import ImagesMemo, Metric, as_bytes, extract_features
from lantern.models.checkpoints import read_weights
from lantern.runtime.hardware import resolve_device

LAYERS = ["2048", "logits_unbiased"]
SPLIT_SEED = 2020  # of torch-fidelity's splits
IMAGES_PER_SPLIT = 50  # with fewer the score mostly reflects their number
RESAMPLES = 200
FETCH = (
    f"fetch {URL_INCEPTION_V3} (91 MB) and give its path as metrics.fidelity.extractor.weights=…, or for the inception "
    "score as metrics.inception_score.network.weights=…"
)
WITHOUT_WEIGHTS = (
    f"FID and the inception score need the weights of torch-fidelity's Inception; {FETCH}; without them "
    "'metrics=[fidelity_vision]' judges by DINOv2's features and 'metrics=[fidelity]' by those of the embedded critic"
)


class Inception(nn.Module):
    """Features and logits of images from any device."""

    resize = f"bilinear as in TensorFlow 1, {FeatureExtractorInceptionV3.INPUT_IMAGE_SIZE}"

    def __init__(self, body: FeatureExtractorInceptionV3) -> None:
        super().__init__()
        self.body = body

    def features(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, 2048] of the last pooling, for the FID."""
        return self._layers(images)[0]

    def logits(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, 1008] without the last layer's bias, as in the papers' Inception scores."""
        return self._layers(images)[1]

    def _layers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.body(as_bytes(images).to(next(self.parameters()).device))


def load_inception(weights: str | Path | None, device: str = "cpu") -> Inception:
    """weights: the file of torch-fidelity's releases."""
    if weights is None:
        raise CheckpointError(WITHOUT_WEIGHTS)
    read_weights(weights)  # torch-fidelity would execute code in the file
    with explaining(f"{weights} holds no weights of torch-fidelity's Inception", FETCH):
        body = FeatureExtractorInceptionV3("inception", LAYERS, feature_extractor_weights_path=str(weights))
    return Inception(body).to(resolve_device(device))


class InceptionScore(Metric):
    """The mean over `splits` parts of the images; papers use 10 of 5,000 images each. It grows with the number of
    images."""

    def __init__(self, network: Inception, splits: int = 1) -> None:
        check_whole("metrics.inception_score", 1, splits=splits)
        self.splits = splits
        self._resize, self._hash = network.resize, state_hash(network)
        self._logits = ImagesMemo(lambda images: extract_features(images, network.logits))

    def prepare(self, prompts: Sequence[str]) -> None:
        if len(prompts) < 2 * self.splits:
            raise LanternError(
                f"{len(prompts)} images are too few for {self.splits} splits of an Inception score; give at least "
                f"{2 * self.splits}, by quality.num_images in evaluate.py"
            )

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        logits = self._logits(images)
        parts = self._parts(len(logits))
        return jackknife(
            lambda kept: self._score(logits, [part[np.isin(part, kept)] for part in parts]), prompt_groups(prompts)
        ).keys("inception_score")

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """inception_score_loss: AR's less the method's."""
        own, ar = self._logits(images), self._logits(plain)
        both = torch.cat([own, ar])
        swap = swaps(len(own), RESAMPLES) & ~(own == ar).all(1)  # equal pairs stay: no rounding noise
        parts = self._parts(len(own))
        sides = zip(*swapped_sides(swap), strict=True)
        moved = [self._score(both[second], parts) - self._score(both[first], parts) for first, second in sides]
        lost = self._score(ar, parts) - self._score(own, parts)
        return difference_interval(lost, moved).keys("inception_score_loss")

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
        """The images of each split, shuffled as torch-fidelity does. Images stay in their split when others are left
        out, because another partition would also change the score."""
        order = np.random.RandomState(SPLIT_SEED).permutation(count)
        return [order[i * count // self.splits : (i + 1) * count // self.splits] for i in range(self.splits)]

    def _score(self, logits: Tensor, parts: Sequence[np.ndarray]) -> float:
        """The mean over the parts, without empty ones."""
        scores = [
            isc_features_to_metric(logits[part].double(), splits=1)[KEY_METRIC_ISC_MEAN] for part in parts if len(part)
        ]
        return float(np.mean(scores))
