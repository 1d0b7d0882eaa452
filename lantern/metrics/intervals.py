"""Intervals for statistics of sets of images that share a mix of prompts. Redrawing images freely would redraw the mix,
which moves every distance more than any setting does; here the mix stays."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NORMAL_95 = 1.96


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def keys(self, name: str) -> dict[str, float]:
        """As result rows hold it."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def around(value: float, error: float) -> Interval:
    """95 % bounds of a value from its standard error."""
    return Interval(value, value - NORMAL_95 * error, value + NORMAL_95 * error)


def swaps(count: int, resamples: int, seed: int = 0) -> Tensor:
    """[S, N] of bool: whose images of two paired sets change sides."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(2, size=(resamples, count)).astype(bool))


def swapped_sides(swap: Tensor) -> tuple[Tensor, Tensor]:
    """swap [S, N] -> the places [S, N] of both sides in the two sets laid end to end."""
    places = torch.arange(swap.shape[1])
    return places + len(places) * swap, places + len(places) * ~swap


def difference_interval(value: float, swapped: Sequence[float] | np.ndarray) -> Interval:
    """Of a difference between paired sets, from the differences after random swaps within the pairs (Fisher's paired
    randomisation). Swaps keep every prompt and repeat no image, which a bootstrap would, at the price of bias: a
    statistic that is small and quadratic, as a Fréchet distance is, then seems to vary twice as much as it does. Exact
    for sets that are alike; where they differ by several standard errors, up to a fifth too narrow. Equal pairs have
    no width."""
    return around(value, float(np.sqrt(np.mean(np.square(swapped)))))


def prompt_groups(prompts: Sequence[str], count: int, seed: int = 0) -> np.ndarray:
    """[N] a group 0 … count - 1 an image, drawn so that every group has the same mix of prompts as nearly as can be:
    the images in the order of their prompts, each run of `count` spread over all groups."""
    rng = np.random.default_rng(seed)
    order = np.argsort(np.asarray(prompts), kind="stable")
    groups = np.empty(len(prompts), int)
    groups[order] = np.concatenate([rng.permutation(count) for _ in range(-(-len(prompts) // count))])[: len(prompts)]
    return groups


def jackknife(statistic: Callable[[np.ndarray], float], groups: np.ndarray) -> Interval:
    """Of a statistic of kept places, by leaving out one group at a time (Quenouille, 1956). Errs on the wide side."""
    count = int(groups.max()) + 1
    left = np.array([statistic(np.flatnonzero(groups != group)) for group in range(count)])
    error = np.sqrt((count - 1) / count * np.square(left - left.mean()).sum())
    return around(statistic(np.arange(len(groups))), float(error))


def loss_interval(plain: np.ndarray, method: np.ndarray, same: np.ndarray) -> Interval:
    """Of the loss in a share of right answers [N], paired: Bonett and Price (2012), which stays honest where few
    answers differ. Pairs known to be the same image [N] cannot differ and add no uncertainty."""
    lost, won = float((plain * (1 - method)).sum()), float(((1 - plain) * method).sum())
    count, open_pairs = len(plain), int((~same).sum())
    if not open_pairs:
        return Interval(0.0, 0.0, 0.0)
    share_lost, share_won = (lost + 1) / (open_pairs + 2), (won + 1) / (open_pairs + 2)
    centre = share_lost - share_won
    margin = NORMAL_95 * np.sqrt((share_lost + share_won - centre**2) / (open_pairs + 2))
    scale = open_pairs / count
    return Interval((lost - won) / count, scale * (centre - margin), scale * (centre + margin))


def bootstrap(
    values: Sequence | np.ndarray,
    statistic: Callable[[np.ndarray], float] = np.mean,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """The 95 % interval of a statistic of values [M, ...], resampled along the first axis; nan, nan for no values."""
    values = np.asarray(values)
    if not len(values):
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    found = [statistic(values[rng.integers(len(values), size=len(values))]) for _ in range(samples)]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def share_bounds(share: float, count: int) -> tuple[float, float]:
    """95 % bounds of a share of `count` images (Wilson's interval, which stays within [0, 1]); nan, nan of none."""
    if not count:
        return float("nan"), float("nan")
    centre, spread = share + NORMAL_95**2 / (2 * count), share * (1 - share) / count + (NORMAL_95 / (2 * count)) ** 2
    scale = 1 + NORMAL_95**2 / count
    return (centre - NORMAL_95 * spread**0.5) / scale, (centre + NORMAL_95 * spread**0.5) / scale
