"""95 % intervals for statistics of sets of images. Resampling for distances keeps the mix of prompts: a free bootstrap
would redraw it, which moves every distance more than any setting does. `mean_interval` is for means."""

from collections.abc import Sequence
from math import exp, log, nan
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NORMAL_95 = 1.96
JACKKNIFE_GROUPS = 40
MAX_EXPONENT = 600.0  # e to which is 1e260


class Interval(NamedTuple):
    """A value and its 95 % bounds."""

    value: float
    low: float
    high: float

    def keys(self, name: str) -> dict[str, float]:
        """Under the keys of a result row."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def stretched(self, factor: float) -> "Interval":
        """Multiplies the bounds' distances to the value by `factor`, on the log scale; all three are above 0. nan for a
        bound that is unknown, and beyond the range of floats: bounds so far away tell nothing."""

        def moved(bound: float) -> float:
            exponent = factor * (log(bound) - log(self.value)) if bound > 0 and self.value > 0 else nan
            return self.value * exp(exponent) if abs(exponent) < MAX_EXPONENT else nan

        return Interval(self.value, moved(self.low), moved(self.high))


def around(value: float, error: float) -> Interval:
    """95 % bounds of a value from its standard error."""
    return Interval(value, value - NORMAL_95 * error, value + NORMAL_95 * error)


def swaps(count: int, resamples: int, seed: int = 0) -> Tensor:
    """bool [S, N]: the pairs of two sets whose images change sides, at random."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(2, size=(resamples, count)).astype(bool))


def swapped_sides(swap: Tensor) -> tuple[Tensor, Tensor]:
    """swap [S, N] -> the indices [S, N] of both sides in the two sets laid end to end."""
    indices = torch.arange(swap.shape[1])
    return indices + len(indices) * swap, indices + len(indices) * ~swap


def difference_interval(value: float, swapped: Sequence[float] | np.ndarray) -> Interval:
    """Of a difference between paired sets, from the differences after random swaps within the pairs (Fisher's paired
    randomisation).

    Swaps keep every prompt and repeat no image. A bootstrap repeats images, by which a small quadratic statistic such
    as the Fréchet distance seems to vary twice as much as it does. Exact for sets of the same law; up to a fifth too
    narrow where they differ by several standard errors. Equal pairs add no width.
    """
    return around(value, float(np.sqrt(np.mean(np.square(swapped)))))


def prompt_groups(prompts: Sequence[str], count: int = JACKKNIFE_GROUPS, seed: int = 0) -> np.ndarray:
    """[N] the group 0 … count - 1 of each image, at most N groups, at random with nearly the same mix of prompts in
    every group: images are sorted by prompt, and each run of `count` is spread over all groups."""
    rng, count = np.random.default_rng(seed), min(count, len(prompts))
    order = np.argsort(np.asarray(prompts), kind="stable")
    groups = np.empty(len(prompts), int)
    groups[order] = np.concatenate([rng.permutation(count) for _ in range(-(-len(prompts) // count))])[: len(prompts)]
    return groups


def left_out_interval(value: float, left: np.ndarray) -> Interval:
    """The jackknife's (Quenouille, 1956), from the values [G] with each group left out in turn. Errs on the wide side,
    except for few images with rare outliers: in simulations it covers the Fréchet distance of 8 images in 46 % of
    cases, of 24 in 69 %, of 64 in 93 %."""
    return around(value, float(np.sqrt((len(left) - 1) / len(left) * np.square(left - left.mean()).sum())))


def loss_interval(plain: np.ndarray, method: np.ndarray) -> Interval:
    """Paired interval of the loss in a share of right answers [N]: Bonett and Price (2012), which keeps its coverage if
    few answers differ, or none. Pairs of equal images count too: other images of the method might differ."""
    lost, won = float((plain * (1 - method)).sum()), float(((1 - plain) * method).sum())
    count = len(plain)
    share_lost, share_won = (lost + 1) / (count + 2), (won + 1) / (count + 2)
    centre = share_lost - share_won
    margin = NORMAL_95 * np.sqrt((share_lost + share_won - centre**2) / (count + 2))
    return Interval((lost - won) / count, float(centre - margin), float(centre + margin))


def mean_interval(values: Sequence[float] | np.ndarray, samples: int = 1000, seed: int = 0) -> Interval:
    """Of the mean of values [M], by a bootstrap, widened to Student's t; nan bounds for fewer than two values."""
    values = np.asarray(values)
    return clustered_mean(values, np.arange(len(values)), samples, seed) if len(values) else Interval(nan, nan, nan)


def clustered_mean(values: np.ndarray, clusters: np.ndarray, samples: int = 4000, seed: int = 0) -> Interval:
    """Of the mean of values [N] that resemble one another within their clusters [N], such as positions of one image.
    Resamples whole clusters, widened to Student's t; nan bounds for a single cluster."""
    _, own = np.unique(clusters, return_inverse=True)
    sums, mean = np.bincount(own, weights=values), float(np.mean(values))
    _, *bounds = ratio_bootstrap(sums, np.bincount(own), samples, seed)
    factor = small_sample_factor(len(sums)) if len(sums) > 1 else 1.0
    low, high = mean + (np.array(bounds) - mean) * factor
    return Interval(mean, float(low), float(high))


def ratio_bootstrap(
    numerators: Sequence[float] | np.ndarray, denominators: Sequence[float] | np.ndarray, samples: int, seed: int
) -> Interval:
    """sum(numerators [N]) / sum(denominators [N]), and the 2.5 % and 97.5 % percentiles of this ratio over resampled
    pairs; nan bounds for a single pair. With few pairs the percentiles are too narrow: see small_sample_factor."""
    tops, bottoms = np.asarray(numerators), np.asarray(denominators)
    ratio, count = float(tops.sum() / bottoms.sum()), len(tops)
    if count < 2:
        return Interval(ratio, nan, nan)
    rng = np.random.default_rng(seed)
    draws = (rng.integers(count, size=count) for _ in range(samples))
    low, high = np.percentile([tops[draw].sum() / bottoms[draw].sum() for draw in draws], [2.5, 97.5])
    return Interval(ratio, float(low), float(high))


def total_ratio(
    numerators: Sequence[float] | np.ndarray, denominators: Sequence[float] | np.ndarray, samples: int = 4000,
    seed: int = 0,
) -> Interval:  # fmt: skip
    """The ratio of the sums of positive numbers by image, such as seconds or steps. Bounds by a bootstrap, widened to
    Student's t on the log scale, since such a ratio stays above 0."""
    ratio = ratio_bootstrap(numerators, denominators, samples, seed)
    return ratio if len(numerators) < 2 else ratio.stretched(small_sample_factor(len(numerators)))


def small_sample_factor(count: int) -> float:
    """By how much a bootstrap's interval of a mean of `count` values has to be widened: percentiles of few values are
    too narrow (Hesterberg, 1411.5279, section 4)."""
    from scipy.stats import t as student_t  # takes half a second to import

    return float(student_t.ppf(0.975, count - 1)) / NORMAL_95 * (count / (count - 1)) ** 0.5


def simultaneous_factor(count: int, num_timed: int | None) -> float:
    """Factor by which 95 % bounds must be stretched to keep their coverage for the best of `count` values, as chosen by
    these measurements (Bonferroni). Bounds of `num_timed` images are Student's, None: normal, of shorter tails."""
    from scipy.stats import t as student_t

    tail = student_t(np.inf if num_timed is None else num_timed - 1)
    return float(tail.ppf(1 - 0.025 / count) / tail.ppf(0.975))


def share_bounds(share: float, count: int) -> tuple[float, float]:
    """95 % bounds of a share of `count` images (Wilson's interval, which stays within [0, 1]); nan, nan of none."""
    if not count:
        return nan, nan
    centre, spread = share + NORMAL_95**2 / (2 * count), share * (1 - share) / count + (NORMAL_95 / (2 * count)) ** 2
    scale = 1 + NORMAL_95**2 / count
    return (centre - NORMAL_95 * spread**0.5) / scale, (centre + NORMAL_95 * spread**0.5) / scale
