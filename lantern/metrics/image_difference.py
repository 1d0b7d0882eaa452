"""Pixel difference between a method's images and AR's of the same prompts and seeds. Under shared noise a lossless
method makes equal images; under ratio verification even a lossless method makes others, and only sets compare."""

from collections.abc import Sequence
from math import nan

from torch import Tensor

from lantern.metrics.intervals import Interval, bootstrap, share_bounds

FEWEST = 10  # pairs that differ, fewer of which, beside equal ones, say little of how far others differ


class ImageDifference:
    """Has no value of its own: compares pairs only."""

    def prepare(self, prompts: Sequence[str]) -> None:
        """Accepts any prompts."""

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        return {}

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """equal_images: the share of equal pairs; image_diff: mean absolute difference of pixel values in [0, 1], with
        nan bounds where most of what it may be was not seen: fewer than FEWEST pairs differ, and others are equal."""
        apart = (images - plain).abs().flatten(1).mean(1).double().numpy()
        equal = float((apart == 0).mean())
        is_seen = equal == 0 or (apart > 0).sum() >= FEWEST
        bounds = bootstrap(apart, samples=500) if is_seen else (nan, nan)
        values = Interval(float(apart.mean()), *bounds).keys("image_diff")
        return values | Interval(equal, *share_bounds(equal, len(apart))).keys("equal_images")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []
