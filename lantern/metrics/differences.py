"""How much images differ: those of one prompt from one another, and a method's from AR's."""

from collections import defaultdict
from collections.abc import Sequence
from math import nan

import numpy as np
import torch
from torch import nn

from lantern.data.image_sets import Images, batches
from lantern.identity import state_hash
from lantern.metrics.intervals import Interval, mean_interval, share_bounds
from lantern.metrics.metric import Metric, extract_features

SAMPLES = 500  # of a bootstrap
MIN_DIFFERENT = 10  # pairs; where fewer differ and others are equal, the mean difference is hardly known


class Diversity(Metric):
    """Mean distance of features between images of the same prompt, averaged over prompts with several images; hardly
    visible in distances to real images."""

    def __init__(self, extractor: nn.Module) -> None:
        """extractor.features: images [N, 3, H, W] in [0, 1] -> [N, F]"""
        self.extractor = extractor

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        return mean_interval(self._by_prompt(images, prompts), SAMPLES).keys("diversity")

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """diversity_loss: AR's less the method's, a prompt's two values resampled together."""
        lost = self._by_prompt(plain, prompts) - self._by_prompt(images, prompts)
        return mean_interval(lost, SAMPLES).keys("diversity_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {"diversity_extractor": state_hash(self.extractor)}

    def _by_prompt(self, images: Images, prompts: Sequence[str]) -> np.ndarray:
        features = extract_features(images, self.extractor.features)
        indices = defaultdict(list)
        for index, prompt in enumerate(prompts):
            indices[prompt].append(index)
        apart = [torch.pdist(features[same].double()).mean() for same in indices.values() if len(same) > 1]
        return np.array([float(distance) for distance in apart])


class ImageDifference(Metric):
    """Pixel difference between a method's images and AR's of the same prompts and seeds. Under shared noise a lossless
    method's images are equal to AR's; under ratio verification only their law is."""

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        return {}

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """equal_images: the share of equal pairs. image_diff: mean absolute difference of pixel values in [0, 1]."""
        pairs = zip(batches(images), batches(plain), strict=True)
        apart = torch.cat([(own - ar).abs().flatten(1).mean(1) for own, ar in pairs]).double().numpy()
        equal = float((apart == 0).mean())
        is_known = equal == 0 or (apart > 0).sum() >= MIN_DIFFERENT
        difference = mean_interval(apart, SAMPLES) if is_known else Interval(float(apart.mean()), nan, nan)
        difference = difference._replace(low=max(0.0, difference.low)) if is_known else difference
        return difference.keys("image_diff") | Interval(equal, *share_bounds(equal, len(apart))).keys("equal_images")
