"""How far a method's images are from AR's of the same prompts and seeds: under shared noise a lossless method makes the
same ones. Under ratio verification even a lossless method makes others; there only sets can be compared."""

from collections.abc import Sequence

from torch import Tensor

from lantern.metrics.intervals import Interval, bootstrap, share_bounds


class ImageDifference:
    def prepare(self, prompts: Sequence[str]) -> None:
        """Any prompts will do."""

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        return {}

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """equal_images: their share; image_diff: the mean difference of a pixel's value in [0, 1]; with 95 % bounds."""
        apart = (images - plain).abs().flatten(1).mean(1).double().numpy()
        equal = float((apart == 0).mean())
        values = Interval(float(apart.mean()), *bootstrap(apart, samples=500)).keys("image_diff")
        return values | Interval(equal, *share_bounds(equal, len(apart))).keys("equal_images")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        return []
