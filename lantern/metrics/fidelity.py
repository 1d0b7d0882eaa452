"""Fréchet and kernel distance, precision and recall of images against real ones, and a method's loss in them against
plain AR decoding of the same prompts and seeds."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lantern.errors import LanternError, is_whole
from lantern.identity import state_hash, tensor_hash
from lantern.metrics.distances import (
    FrechetTo,
    Manifolds,
    frechet_distance,
    kernel_distance,
    kernel_moves,
    precision_recall,
    prompt_labels,
)
from lantern.metrics.intervals import (
    Interval,
    difference_interval,
    jackknife,
    jackknives,
    prompt_groups,
    share_bounds,
    swapped_sides,
    swaps,
)
from lantern.metrics.metric import Metric, TensorMemo, extract_features
from lantern.runtime.memory import check_main_memory

MIN_IMAGES = 8
MAX_COUNT = 100_000  # reference images, paired swaps
MATRICES = 4  # of float64 over all pairs of images, alive at once
WIDER = 1.25  # swaps of a share give bounds 0.84 times as wide as its spread where much of it is lost (simulated)
MIN_IMAGES_PER_FEATURE = 10  # a covariance of fewer is mostly noise, and so is a Fréchet distance
# prompts, a number M -> real images [M, 3, H, W] in [0, 1], the i-th of prompt i, prompts cycling
References = Callable[[tuple[str, ...], int], Tensor]


class Fidelity(Metric):
    """Compares images with real ones of the same prompts. Every value depends on the number of images of both sets, and
    the bounds of precision are those with these real images."""

    def __init__(
        self, extractor: nn.Module, references: References, num_references: int = 512, resamples: int = 200
    ) -> None:
        """extractor.features: images [N, 3, H, W] in [0, 1] -> [N, F]. resamples: number of paired swaps, from which
        the bounds of a difference are estimated."""
        for name, number, least in (("num_references", num_references, MIN_IMAGES), ("resamples", resamples, 1)):
            if not is_whole(number) or not least <= number <= MAX_COUNT:
                raise LanternError(f"fidelity.{name}={number}: give a whole number from {least} to {MAX_COUNT}")
        self.extractor, self.references = extractor, references
        self.num_references, self.resamples = num_references, resamples
        self._real_features: dict[tuple[str, ...], Tensor] = {}  # by prompts
        self._features = TensorMemo(lambda images: extract_features(images, extractor.features))

    def prepare(self, prompts: Sequence[str]) -> None:
        if len(prompts) < MIN_IMAGES:
            raise LanternError(
                f"quality.num_images={len(prompts)} is too few to judge by; use at least {MIN_IMAGES}, or 0"
            )
        pairs = max(2 * len(prompts), self.num_references) ** 2  # of both sides' images, and of real ones
        what, remedy = f"the distances of {len(prompts)} images to one another", "give a smaller quality.num_images"
        check_main_memory(MATRICES * 8 * pairs, what, remedy)
        self._real(prompts)

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        """The extractor and the real images, by their hashes."""
        real = self._real(prompts)
        return {
            "extractor": f"{type(self.extractor).__name__.lower()}-{state_hash(self.extractor)}",
            "resize": getattr(self.extractor, "resize", "none"),
            "features": real.shape[1],
            "num_references": len(real),
            "reference_hash": tensor_hash(real),
        }

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """images [N, 3, H, W] in [0, 1] -> Fréchet and kernel distance, precision and recall, with 95 % bounds."""
        real, made = self._real(prompts), self._features(images)
        labels, real_labels = prompt_labels(prompts, len(real))
        groups = prompt_groups(prompts)
        real_groups = groups[np.arange(len(real)) % len(groups)]  # a real image is in the group of its prompt's image
        manifolds = Manifolds(made, real)

        def kept_real(kept: np.ndarray) -> np.ndarray:
            return np.isin(real_groups, groups[kept])

        def frechet(kept: np.ndarray) -> float:
            return FrechetTo(real[kept_real(kept)])(made[kept])

        def kernel(kept: np.ndarray) -> float:
            here = kept_real(kept)
            return kernel_distance(made[kept], real[here], labels[kept], real_labels[here])

        def shares(kept: np.ndarray) -> tuple[float, float]:  # fewer real images would have larger radii
            return manifolds(torch.from_numpy(kept), torch.from_numpy(np.flatnonzero(kept_real(kept))))

        values = jackknife(frechet, groups).keys("frechet") | jackknife(kernel, groups).keys("kernel")
        values["frechet"] = frechet_distance(made, real)
        values["frechet_low"] = max(0.0, values["frechet_low"])  # of the two, only the kernel distance can be negative
        counts = {"precision": len(made), "recall": len(real)}
        rows = zip(counts.items(), precision_recall(made, real), jackknives(shares, groups), strict=True)
        for (name, count), share, moved in rows:
            low, high = share_bounds(share, count)  # where all or none count, the jackknife has no width
            values |= Interval(share, max(0.0, min(low, moved.low)), min(1.0, max(high, moved.high))).keys(name)
        return values

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """frechet_diff and kernel_diff (method less AR), precision_loss and recall_loss (AR less method). The bounds of
        the losses are WIDER times those of the swaps: a quarter too wide where both sides have one law."""
        real, pair = self._real(prompts), torch.cat([self._features(images), self._features(plain)])
        frechet, manifolds, count = FrechetTo(real), Manifolds(pair, real), len(images)
        unswapped = torch.zeros(1, count, dtype=torch.bool)
        same = (pair[:count] == pair[count:]).all(1)
        sides = swapped_sides(torch.cat([unswapped, swaps(count, self.resamples)]))
        sides = [torch.where(same, side % count, side) for side in sides]  # equal to the last bit
        lost = np.array([np.subtract(manifolds(b), manifolds(a)) for a, b in zip(*sides, strict=True)])  # [S, 2]
        moved = {
            "frechet_diff": [frechet(pair[a]) - frechet(pair[b]) for a, b in zip(*sides, strict=True)],
            "kernel_diff": kernel_moves(pair, sides, real, prompts),
        }
        intervals = {name: difference_interval(float(found[0]), found[1:]) for name, found in moved.items()}
        for column, name in enumerate(("precision_loss", "recall_loss")):
            intervals[name] = difference_interval(float(lost[0, column]), WIDER * lost[1:, column])
            if not same.all() and not lost[:, column].any():  # a ceiling says nothing of other images
                intervals[name] = Interval(0.0, float("nan"), float("nan"))
        return {key: value for name, interval in intervals.items() for key, value in interval.keys(name).items()}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        """The bias of a Fréchet distance of few images, which is less for a set of less variety."""
        count, width = len(prompts), self._real(prompts).shape[1]
        if count >= MIN_IMAGES_PER_FEATURE * width:
            return []
        return [
            f"{count} images for {width} features: the Fréchet distance is mostly bias at this size, and a method that "
            f"loses variety has less of it, so that even the sign of frechet_diff may be wrong; use kernel_diff, which "
            f"is unbiased"
        ]

    def _real(self, prompts: Sequence[str]) -> Tensor:
        key = tuple(prompts)
        if key not in self._real_features:
            images = self.references(key, self.num_references)
            self._real_features[key] = extract_features(images, self.extractor.features)
        return self._real_features[key]
