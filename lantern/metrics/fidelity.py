"""Fréchet and kernel distance, precision and recall of images against real ones, and a method's loss in them against
plain AR decoding of the same prompts and seeds; features by torch-fidelity with any extractor."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lantern.errors import LanternError, is_whole
from lantern.identity import tensor_hash
from lantern.metrics.distances import NEIGHBOURHOOD, FrechetTo, Manifolds, kernel_distances
from lantern.metrics.extraction import QUIET, extract_features, register_extractor
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
from lantern.metrics.tensor_memo import TensorMemo
from lantern.runtime.memory import check_main_memory

MIN_IMAGES = 8
MOST = 100_000  # reference images, paired swaps
MATRICES = 4  # of float64 over all pairs of images, alive at once
WIDER = 1.25  # swaps of a share give bounds 0.84 times as wide as its spread where much of it is lost (simulated)
BIASED_BELOW = 10  # images a feature; a covariance of fewer is mostly noise, and so is a Fréchet distance
# prompts, a number M -> real images [M, 3, H, W] in [0, 1], the i-th of prompt i, prompts cycling
References = Callable[[tuple[str, ...], int], Tensor]


class Fidelity:
    """Compares images with real ones of the same prompts. Every value depends on the number of images of both sets, and
    the bounds of precision are those with these real images."""

    def __init__(
        self, extractor: nn.Module, references: References, num_references: int = 512, resamples: int = 200
    ) -> None:
        """extractor.features: images [N, 3, H, W] in [0, 1] -> [N, F]. resamples: number of paired swaps, from which
        the bounds of a difference are estimated. LanternError for either out of range."""
        for name, number, least in (("num_references", num_references, MIN_IMAGES), ("resamples", resamples, 1)):
            if not is_whole(number) or not least <= number <= MOST:
                raise LanternError(f"fidelity.{name}={number}: give a whole number from {least} to {MOST}")
        self.extractor = register_extractor(extractor)
        self.references, self.num_references, self.resamples = references, num_references, resamples
        self._resize = getattr(extractor, "resize", "none")
        self._rendered: dict[tuple[str, ...], Tensor] = {}  # real images of prompts, until their features are extracted
        self._real_features: dict[tuple[str, ...], Tensor] = {}
        self._features = TensorMemo(lambda images: extract_features(images, self.extractor))

    def prepare(self, prompts: Sequence[str]) -> None:
        """LanternError for too few images, for more than fit in memory, or for prompts without real images."""
        if len(prompts) < MIN_IMAGES:
            raise LanternError(
                f"quality.num_images={len(prompts)} is too few to judge by; use at least {MIN_IMAGES}, or 0"
            )
        pairs = max(2 * len(prompts), self.num_references) ** 2  # of both sides' images, and of real ones
        what, remedy = f"the distances of {len(prompts)} images to one another", "give a smaller quality.num_images"
        check_main_memory(MATRICES * 8 * pairs, what, remedy)
        if tuple(prompts) not in self._real_features:  # features can wait until there are images to judge
            self._rendered[tuple(prompts)] = self.references(tuple(prompts), self.num_references)

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        """The extractor and the real images, by their hashes."""
        real = self._real(prompts)
        return {
            "extractor": self.extractor, "resize": self._resize, "features": real.shape[1],
            "num_references": len(real), "reference_hash": tensor_hash(real),
        }  # fmt: skip

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """images [N, 3, H, W] in [0, 1] -> Fréchet and kernel distance, precision and recall, with 95 % bounds."""
        real, made = self._real(prompts), self._features(images)
        groups = prompt_groups(prompts)
        real_groups = groups[np.arange(len(real)) % len(groups)]  # a real image is in the group of its prompt's image
        values: dict[str, float] = {}
        labels, real_labels = prompt_labels(prompts, len(real))

        def kept_real(kept: np.ndarray) -> np.ndarray:
            return np.isin(real_groups, groups[kept])

        def frechet(kept: np.ndarray) -> float:
            return FrechetTo(real[kept_real(kept)])(made[kept])

        def kernel(kept: np.ndarray) -> float:
            here = kept_real(kept)
            return kernel_distance(made[kept], real[here], labels[kept], real_labels[here])

        for name, distance in (("frechet", frechet), ("kernel", kernel)):
            values |= jackknife(distance, groups).keys(name)
        values["frechet"] = frechet_distance(made, real)
        values["frechet_low"] = max(0.0, values["frechet_low"])  # of the two, only the kernel distance can be negative
        manifolds = Manifolds(made, real)

        def shares(kept: np.ndarray) -> tuple[float, float]:  # fewer real images would have larger radii
            return manifolds(torch.from_numpy(kept), torch.from_numpy(np.flatnonzero(kept_real(kept))))

        counts = {"precision": len(made), "recall": len(real)}
        found = zip(counts.items(), precision_recall(made, real), jackknives(shares, groups), strict=True)
        for (name, count), share, moved in found:
            low, high = share_bounds(share, count)  # where all or none count, the jackknife has no width
            values |= Interval(share, max(0.0, min(low, moved.low)), min(1.0, max(high, moved.high))).keys(name)
        return values

    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """Against AR's images of the same prompts and seeds, with 95 % bounds: frechet_diff and kernel_diff (method
        less AR), precision_loss and recall_loss (AR less method), whose bounds are WIDER times those of the swaps: a
        quarter too wide where both sides have one law."""
        real, pair = self._real(prompts), torch.cat([self._features(images), self._features(plain)])
        frechet, manifolds = FrechetTo(real), Manifolds(pair, real)
        count = len(images)
        swap = torch.cat([torch.zeros(1, count, dtype=torch.bool), swaps(count, self.resamples)])
        same = (pair[:count] == pair[count:]).all(1)
        sides = [torch.where(same, side % count, side) for side in swapped_sides(swap)]  # equal to the last bit
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
        if count >= BIASED_BELOW * width:
            return []
        return [
            f"{count} images for {width} features: the Fréchet distance is mostly bias at this size, and a method that "
            f"loses variety has less of it, so that even the sign of frechet_diff may be wrong; use kernel_diff, which "
            f"is unbiased"
        ]

    def _real(self, prompts: Sequence[str]) -> Tensor:
        key = tuple(prompts)
        if key not in self._real_features:
            images = self._rendered.pop(key, None)
            images = self.references(key, self.num_references) if images is None else images
            self._real_features[key] = extract_features(images, self.extractor)
        return self._real_features[key]


def kernel_moves(pair: Tensor, sides: Sequence[Tensor], real: Tensor, prompts: Sequence[str]) -> list[float]:
    """Kernel distance of one side less the other's, swap by swap. pair [2N, F], sides: two of indices [S, N]."""
    labels, real_labels = prompt_labels(prompts, len(real))
    found = []
    for side in sides:
        chosen = torch.zeros(len(side), len(pair), dtype=torch.bool).scatter_(1, side, True)
        found.append(kernel_distances(pair, chosen, real, labels.repeat(2), real_labels))
    return (found[0] - found[1]).tolist()


def prompt_labels(prompts: Sequence[str], num_references: int) -> tuple[Tensor, Tensor]:
    """The number of each image's prompt text [N], and of each real image's [M], prompts cycling."""
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    labels = torch.tensor([numbers[prompt] for prompt in prompts])
    return labels, labels[torch.arange(num_references) % len(labels)]


def frechet_distance(generated: Tensor, real: Tensor) -> float:
    """Distance of the two Gaussians fitted to features [N, F]; biased upwards by about 1/N, so compare at equal N."""
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = [fid_features_to_statistics(features) for features in (generated, real)]
    return fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]


def kernel_distance(generated: Tensor, real: Tensor, labels: Tensor, real_labels: Tensor) -> float:
    """Squared maximum mean discrepancy under the cubic kernel: kernel_distances of all images."""
    everyone = torch.ones(1, len(generated), dtype=torch.bool)
    return float(kernel_distances(generated, everyone, real, labels, real_labels))


def precision_recall(generated: Tensor, real: Tensor) -> tuple[float, float]:
    """Share of generated images within the real manifold, and of real ones within the generated manifold."""
    from torch_fidelity.metric_prc import KEY_METRIC_PRECISION, KEY_METRIC_RECALL, prc_features_to_metric

    found = prc_features_to_metric(generated, real, prc_neighborhood=NEIGHBOURHOOD, **QUIET)
    return found[KEY_METRIC_PRECISION], found[KEY_METRIC_RECALL]
