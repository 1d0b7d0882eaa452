"""Bounds have their nominal coverage, on data whose prompts differ far more than the methods do."""

from functools import partial
from math import isnan

import numpy as np
import pytest
import torch
from support.features import gaussian

from lantern.metrics import intervals
from lantern.metrics.distances import FrechetTo

PROMPTS, DIMS = 64, 4
MEANS = 3 * gaussian(PROMPTS, dims=DIMS, seed=9)  # of a prompt's images
REAL = MEANS.repeat(4, 1) + gaussian(4 * PROMPTS, dims=DIMS, seed=8)


def images(seed: int, shift: float = 0.0) -> torch.Tensor:
    return MEANS + shift + gaussian(PROMPTS, dims=DIMS, seed=seed)


def difference(seed: int, shift: float):
    pair = torch.cat([images(2 * seed, shift), images(2 * seed + 1)])
    distance = FrechetTo(REAL)
    first, second = intervals.swapped_sides(intervals.swaps(PROMPTS, 60, seed))
    moved = [distance(pair[a]) - distance(pair[b]) for a, b in zip(first, second, strict=True)]
    return intervals.difference_interval(distance(pair[:PROMPTS]) - distance(pair[PROMPTS:]), moved)


@pytest.mark.full
@pytest.mark.parametrize(("shift", "least"), [(0.0, 0.9), (0.3, 0.83)])
def test_the_bounds_of_a_difference_cover_and_are_no_wider_than_needed(shift, least):
    """Catches a resampling that mixes prompts, or breaks pairs. With a shift of 0.3, they cover 87 times in 100."""
    found = [difference(seed, shift) for seed in range(50, 170)]  # away from the seeds of prompts and real images
    truth = np.mean([interval.value for interval in found])
    covered = np.mean([interval.low <= truth <= interval.high for interval in found])
    spread = np.std([interval.value for interval in found])
    width = np.mean([interval.high - interval.low for interval in found]) / (2 * 1.96)
    assert covered >= least
    assert 0.75 < width / spread < 1.2


@pytest.mark.full
def test_the_bounds_of_a_distance_keep_the_mix_of_prompts():
    """Redrawing images freely gives bounds three times as wide as needed here."""
    names = [f"{i:03d}" for i in range(PROMPTS)]
    found, free = [], []
    for seed in range(60):
        made = images(seed)
        groups = intervals.prompt_groups(names, 32, seed)
        distance = FrechetTo(REAL)
        without = np.array([distance(made[groups != g]) for g in range(32)])
        found.append(intervals.left_out_interval(distance(made), without))
        rng = np.random.default_rng(seed)
        free.append(np.std([distance(made[rng.integers(PROMPTS, size=PROMPTS)]) for _ in range(20)]))
    truth, spread = (f([interval.value for interval in found]) for f in (np.mean, np.std))
    covered = np.mean([interval.low <= truth <= interval.high for interval in found])
    width = np.mean([interval.high - interval.low for interval in found]) / (2 * 1.96)
    assert covered >= 0.93
    assert width < 0.8 * np.mean(free)
    assert width < 3 * spread


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=50)
    without = np.array([np.delete(values, index).mean() for index in range(50)])
    found = intervals.left_out_interval(values.mean(), without)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * values.std(ddof=1) / 50**0.5)


@pytest.mark.full
@pytest.mark.parametrize(("before", "after", "count"), [(0.98, 0.95, 200), (0.99, 0.99, 60), (1.0, 0.97, 100)])
def test_the_bounds_of_a_loss_of_right_answers_cover_also_where_few_answers_differ(before, after, count):
    """Catches bounds of zero width where no answer happened to differ."""
    rng, inside = np.random.default_rng(1), []
    draw = partial(rng.random, size=count)
    for _ in range(400):
        found = intervals.loss_interval((draw() < before) * 1.0, (draw() < after) * 1.0)
        inside.append(found.low <= before - after <= found.high)
    assert np.mean(inside) > 0.93


def test_the_bounds_of_a_loss_are_by_the_formula_of_bonett_and_price():
    """Ten lost and five won of a hundred; none of 40, of which a loss of 2 % is not seen 45 times in 100."""
    plain, method = np.repeat([1.0, 0.0, 1.0], [10, 5, 85]), np.repeat([0.0, 1.0, 1.0], [10, 5, 85])
    assert intervals.loss_interval(plain, method) == pytest.approx((0.05, -0.02964, 0.12767), abs=1e-4)
    right = np.repeat([1.0, 0.0], [30, 10])
    value, low, high = intervals.loss_interval(right, right)
    assert value == 0
    assert -low == high > 0.03


@pytest.mark.full
def test_the_bootstrap_of_few_values_covers_and_one_value_has_no_bounds():
    """Catches bounds that are the two values themselves."""
    assert all(map(np.isnan, [*intervals.mean_interval([0.3])[1:], *intervals.mean_interval([])]))
    assert intervals.mean_interval([1.0, 2.0, 4.0]) == intervals.mean_interval([1.0, 2.0, 4.0])
    rng = np.random.default_rng(0)
    found = [intervals.mean_interval(rng.normal(size=4), samples=300, seed=seed) for seed in range(200)]
    assert sum(low <= 0 <= high for _, low, high in found) >= 180


@pytest.mark.parametrize("factor", [1.0, 30.0, 3000.0, float("nan")])
def test_bounds_of_few_prompts_and_many_candidates_are_finite_or_unknown(factor):
    """Catches a report that ends in an overflow or a division by 0, and a bound of 0 or infinity."""
    wide = intervals.Interval(2.0, 0.02, 200.0).stretched(factor)
    assert wide.value == 2.0
    assert all(isnan(bound) or 0 < bound < float("inf") for bound in (wide.low, wide.high))
    assert isnan(wide.low) == isnan(wide.high) == (factor not in (1.0, 30.0))
    assert intervals.Interval(2.0, 1.0, 8.0).stretched(2.0) == pytest.approx((2.0, 0.5, 32.0))
