"""Prompt accuracy as a metric of an evaluation: the shares of images that show what was asked for, with bounds."""

from collections.abc import Sequence

from torch import Tensor

from lantern.metrics.bootstrap import bootstrap
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
            judged = right[~right.isnan()].numpy()
            low, high = bootstrap(judged)
            share = float(judged.mean()) if len(judged) else float("nan")
            values |= {f"{name}_accuracy": share, f"{name}_accuracy_low": low, f"{name}_accuracy_high": high}
        return values
