"""Percentile bootstrap intervals (Efron, 1979)."""

from collections.abc import Callable, Sequence

import numpy as np


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
