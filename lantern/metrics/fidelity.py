"""Fréchet and kernel distance, precision and recall of images against real ones, and a method's loss in them against
plain AR decoding of the same prompts and seeds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from lantern.data.image_sets import Images, holds_images, open_images, read_statistics
from lantern.errors import LanternError, check_whole
from lantern.identity import state_hash, tensor_hash
from lantern.metrics import distances, intervals
from lantern.metrics.intervals import Interval, difference_interval
from lantern.metrics.metric import Metric, extract_features, size_of

MIN_IMAGES = 8
WIDER = 1.25  # swaps of a share give bounds 0.84 times as wide as its spread where much of it is lost (simulated)
MIN_IMAGES_PER_FEATURE = 10  # a covariance of fewer is mostly noise, and so is a Fréchet distance
# prompts, a number M -> real images in [0, 1], the i-th of prompt i, prompts cycling
References = Callable[[tuple[str, ...], int], Images]


class StoredReferences:
    """Real images that belong to no prompt: a folder, an .npz or a Hub data set; or the statistics of their features,
    which give a Fréchet distance alone. An .npz of ADM holds both: statistics of more images than it has."""

    def __init__(self, source: str | Path, size: int | None = None) -> None:
        """source, size: as open_images takes them, or an .npz of `mu` and `sigma`, as pytorch-fid and ADM write."""
        statistics = read_statistics(source)
        self.gaussian = None if statistics is None else distances.Gaussian(*map(torch.from_numpy, statistics))
        self.images = open_images(source, size) if statistics is None or holds_images(source) else None


class Real(NamedTuple):
    """What is known of the real images."""

    features: Tensor | None  # [M, F]
    gaussian: distances.Gaussian | None  # where it is known and need not be fitted
    is_paired: bool  # whether the i-th image is of prompt i, prompts cycling
    size: str | None  # of the images, where there are some

    @property
    def width(self) -> int:
        return self.features.shape[1] if self.gaussian is None else len(self.gaussian.mean)

    def labels(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Text index of each image and of each real image; if real ones have no texts, all images get their own."""
        if self.is_paired:
            numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
            labels = torch.tensor([numbers[prompt] for prompt in prompts])
            return labels, labels[torch.arange(len(self.features)) % len(labels)]
        everyone = torch.arange(len(prompts) + len(self.features))
        return everyone[: len(prompts)], everyone[len(prompts) :]

    def groups(self, groups: np.ndarray) -> Tensor:
        """[M] the group that each real image is left out with: its prompt's, or one at random."""
        places = np.arange(len(self.features)) % len(groups)
        if not self.is_paired:
            places = np.random.default_rng(0).permutation(places) % (groups.max() + 1)
            return torch.from_numpy(places)
        return torch.from_numpy(groups[places])

    def frechet(self) -> distances.FrechetTo:
        return distances.FrechetTo(self.features if self.gaussian is None else self.gaussian)

    def frechet_without(self, made: Tensor, groups: np.ndarray) -> list[float]:
        """Fréchet distances of features [N, F], leaving out each group in turn, of real images too."""
        count = int(groups.max()) + 1
        parts = distances.parts_without(made, torch.from_numpy(groups), count)
        if self.gaussian is not None:
            to = distances.FrechetTo(self.gaussian)
            return [to(part) for part in parts]
        known = distances.parts_without(self.features, self.groups(groups), count)
        return [distances.FrechetTo(real)(part) for real, part in zip(known, parts, strict=True)]


def _check_number(count: int, what: str) -> None:
    if count < MIN_IMAGES:
        raise LanternError(f"{count} {what} are too few; give {MIN_IMAGES} at least, or leave the metric out")


class Fidelity(Metric):
    """Compares images with real ones, of the same prompts or of none. Every value depends on the number of images
    in both sets. The bounds of precision hold for these real images only."""

    min_images = MIN_IMAGES

    def __init__(
        self, extractor: nn.Module, references: References | StoredReferences | str, num_references: int = 512,
        resamples: int = 200,
    ) -> None:  # fmt: skip
        """extractor.features: images [B, 3, H, W] in [0, 1] -> [B, F]. references: a text is a source for
        StoredReferences, which are all used. num_references: how many a function is asked for. resamples: number of
        paired swaps for the bounds of a difference."""
        self.extractor = extractor
        self.references = StoredReferences(references) if isinstance(references, str) else references
        check_whole("fidelity", MIN_IMAGES, num_references=num_references)
        check_whole("fidelity", 1, resamples=resamples)
        self.num_references, self.resamples = num_references, resamples
        self._known: dict[tuple[str, ...], Real] = {}  # by prompts
        self._size: str | None = None  # of the images that were judged last
        self._made = WeakIdKeyDictionary()  # features of the images that are there: AR's are scored twice

    def prepare(self, prompts: Sequence[str]) -> None:
        _check_number(len(prompts), "images")  # before real ones are read
        real = self._real(prompts)
        if real.features is not None:
            _check_number(len(real.features), "real images")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        """The extractor and the real images or their statistics, by their hashes."""
        real = self._real(prompts)
        known = [] if real.features is None else [real.features.double()]
        known += [] if real.gaussian is None else [real.gaussian.mean[None], real.gaussian.covariance]
        return {
            "extractor": f"{type(self.extractor).__name__.lower()}-{state_hash(self.extractor)}",
            "resize": getattr(self.extractor, "resize", "none"), "features": real.width,
            "image_size": self._size, "reference_size": real.size,
            "num_references": None if real.features is None else len(real.features),
            "reference_hash": tensor_hash(torch.cat(known)),
        }  # fmt: skip

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        """Fréchet and kernel distance, precision and recall, with 95 % bounds by leaving out groups of images."""
        real, made, groups = self._real(prompts), self._features(images), intervals.prompt_groups(prompts)
        if made.shape[1] != real.width:
            raise LanternError(
                f"the references have statistics of {real.width} features and the extractor gives {made.shape[1]}; "
                "give statistics made with the same network, or real images"
            )
        self._size = size_of(images)
        left = np.array(real.frechet_without(made, groups))
        values = intervals.left_out_interval(real.frechet()(made), left).keys("frechet")
        values["frechet_low"] = max(0.0, values["frechet_low"])  # of the two, only the kernel distance can be negative
        if real.features is None:
            return values
        without = torch.arange(-1, int(groups.max()) + 1)[:, None]  # all images, then those without each group
        chosen, kept = torch.from_numpy(groups) != without, real.groups(groups) != without
        kernel = distances.kernel_distances(made, chosen, real.features, kept, *real.labels(prompts)).numpy()
        values |= intervals.left_out_interval(float(kernel[0]), kernel[1:]).keys("kernel")
        manifolds = distances.Manifolds(made, real.features)  # fewer real images would have larger radii
        shares = manifolds(chosen, kept).numpy()
        for column, (name, number) in enumerate({"precision": len(made), "recall": len(real.features)}.items()):
            share = float(shares[0, column])
            moved = intervals.left_out_interval(share, shares[1:, column])
            low, high = intervals.share_bounds(share, number)  # where all or none count, the jackknife has no width
            values |= Interval(share, max(0.0, min(low, moved.low)), min(1.0, max(high, moved.high))).keys(name)
        return values

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """frechet_diff and kernel_diff (method less AR), precision_loss and recall_loss (AR less method). The bounds of
        the losses are WIDER times those of the swaps: a quarter too wide where both sides have one law."""
        real, pair = self._real(prompts), torch.cat([self._features(images), self._features(plain)])
        count = len(images)
        unswapped = torch.zeros(1, count, dtype=torch.bool)
        same = (pair[:count] == pair[count:]).all(1)
        sides = intervals.swapped_sides(torch.cat([unswapped, intervals.swaps(count, self.resamples)]))
        sides = tuple(torch.where(same, side % count, side) for side in sides)  # equal to the last bit
        frechet = real.frechet()
        moved = [frechet(pair[a]) - frechet(pair[b]) for a, b in zip(*sides, strict=True)]
        found = {"frechet_diff": difference_interval(moved[0], moved[1:])}
        if real.features is not None:
            indices, known, (labels, real_labels) = torch.cat(sides), real.features, real.labels(prompts)
            chosen = torch.zeros(len(indices), 2 * count, dtype=torch.bool).scatter_(1, indices, True)
            everyone = torch.ones(1, len(known), dtype=torch.bool)
            kernel = distances.kernel_distances(pair, chosen, known, everyone, labels.repeat(2), real_labels)
            kernel_moved = np.subtract(*kernel.numpy().reshape(2, -1))
            found["kernel_diff"] = difference_interval(float(kernel_moved[0]), kernel_moved[1:])
            shares = distances.Manifolds(pair, known)(chosen, everyone)
            lost = np.subtract(*reversed(shares.numpy().reshape(2, -1, 2)))  # [S, 2]
            for column, name in enumerate(("precision_loss", "recall_loss")):
                found[name] = difference_interval(float(lost[0, column]), WIDER * lost[1:, column])
                if not same.all() and not lost[:, column].any():  # no swap changes it: no information on other images
                    found[name] = Interval(0.0, float("nan"), float("nan"))
        return {key: value for name, interval in found.items() for key, value in interval.keys(name).items()}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        """Warns of the Fréchet distance's bias with few images, which is smaller for less varied sets, and of images of
        another size than the real ones, and of metrics that statistics cannot give."""
        real, count = self._real(prompts), len(prompts)
        told = []
        if count < MIN_IMAGES_PER_FEATURE * real.width:
            told.append(
                f"{count} images for {real.width} features: the Fréchet distance is mostly bias, less for less varied "
                f"images, so that even the sign of a difference may be wrong; use the kernel distance"
            )
        if self._size and real.size and self._size != real.size:
            told.append(f"the images are {self._size} pixels, the references {real.size}; give both in one size")
        if real.features is None:
            told.append("the references are statistics: kernel distance, precision and recall need real images")
        return told

    def _features(self, images: Images) -> Tensor:
        if images not in self._made:
            self._made[images] = extract_features(images, self.extractor.features)
        return self._made[images]

    def _real(self, prompts: Sequence[str]) -> Real:
        stored = self.references if isinstance(self.references, StoredReferences) else None
        key = () if stored else tuple(prompts)
        if key not in self._known:
            images = stored.images if stored else self.references(key, self.num_references)
            features = None if images is None else extract_features(images, self.extractor.features)
            size = None if images is None else size_of(images)
            self._known[key] = Real(features, stored and stored.gaussian, is_paired=not stored, size=size)
        return self._known[key]
