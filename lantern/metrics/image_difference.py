"""Pixel difference between a method's images and AR's of the same prompts and seeds. Under shared noise a lossless
method makes equal images; under ratio verification even a lossless method makes others, and only sets compare."""

from collections.abc import Sequence

from torch import Tensor

from lantern.metrics.intervals import Interval, bootstrap, share_bounds


class ImageDifference:
    """Has no value of its own: compares pairs only."""

    def prepare(self, prompts: Sequence[str]) -> None:
        """Accepts any prompts."""

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        return {}

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """equal_images: the share of equal pairs; image_diff: mean absolute difference of pixel values in [0, 1]."""
        apart = (images - plain).abs().flatten(1).mean(1).double().numpy()
        equal = float((apart == 0).mean())
        values = Interval(float(apart.mean()), *bootstrap(apart, samples=500)).keys("image_diff")
        return values | Interval(equal, *share_bounds(equal, len(apart))).keys("equal_images")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []
