import numpy as np
import pytest
import torch

from lantern.measures import costs, tokens_per_step
from lantern.metrics.speed import copy_bandwidth, speedup, step_ms
from lantern.records import spent_by
from lantern.types import Generation, Round


def generation(steps: list[int], accepted: int = 1, latency_s: float = 1.0) -> Generation:
    paths = [list(range(1 + accepted))] * len(steps)
    rounds = [Round(paths, 4, 2.0, 3.0, 0.5, commit_ms=0.25) for _ in range(max(steps))]
    return Generation(torch.zeros(len(steps), 21), rounds, torch.tensor(steps), latency_s, 7)


def spent(*generations: Generation) -> list[dict]:
    return [line for made in generations for line in spent_by(made)]


def test_tokens_per_step_sums_before_it_divides():
    found = tokens_per_step(spent(generation([5]), generation([20])), 21)
    assert found == pytest.approx(40 / 25)  # not the mean of 4 and 1


def test_costs_are_means_by_image_and_by_round():
    """Catches a batch whose rounds count once an image, and a commit that is nobody's."""
    made = [generation([5]), generation([15]), generation([10, 10])]
    found = costs(spent(*made))
    forwards = {"target_forwards": 10, "drafter_forwards": 21 / 4, "target_nodes": 40}
    assert found == pytest.approx(forwards | {"draft_ms": 2, "verify_ms": 3, "accept_ms": 0.75})


def test_a_step_counts_the_prefill():
    assert step_ms([1.0], [4]) == pytest.approx(200)


def test_speed_up_compares_sums_and_its_bounds_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    inside = []
    for trial in range(150):
        ar = rng.uniform(1, 3, size=24)
        method = ar / rng.normal(2, 0.4, size=24).clip(0.5)
        ratio, low, high = speedup(method, ar, resamples=400, seed=trial)
        assert ratio == pytest.approx(ar.sum() / method.sum())
        assert low <= ratio <= high
        inside.append((low, high))
    truth = np.mean([sum(bounds) / 2 for bounds in inside])
    assert np.mean([low <= truth <= high for low, high in inside]) > 0.85


def test_latencies_of_a_prompt_stay_paired():
    ar = np.array([1.0, 10.0, 5.0])
    assert speedup(ar / 2, ar) == pytest.approx((2, 2, 2))


def test_the_measured_bandwidth_is_that_of_a_memory():
    assert 1e8 < copy_bandwidth(torch.device("cpu"), 1 << 24, 2) < 1e13
