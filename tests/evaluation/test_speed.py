import numpy as np
import pytest
import torch

from lantern.evaluation.records import image_costs
from lantern.evaluation.speed import costs, speed_warnings, tokens_per_step
from lantern.metrics.intervals import total_ratio
from lantern.reporting.table import format_table
from lantern.types import Generation, Round

CPU = torch.device("cpu")


def generation(steps: list[int], accepted: int = 1, latency_s: float = 1.0) -> Generation:
    paths = [list(range(1 + accepted))] * len(steps)
    rounds = [Round(paths, 4, 2.0, 3.0, 0.5, commit_ms=0.25) for _ in range(max(steps))]
    return Generation(torch.zeros(len(steps), 21), rounds, torch.tensor(steps), latency_s, 7, 1.5e-3 * len(rounds))


def spent(*generations: Generation) -> list[dict]:
    return [line for made in generations for line in image_costs(made)]


def test_tokens_per_step_sums_before_it_divides():
    found = tokens_per_step(spent(generation([5]), generation([20])), 21)
    assert found == pytest.approx(40 / 25)  # not the mean of 4 and 1


def test_costs_are_means_by_image_and_by_round():
    """Catches a batch whose rounds count once an image, a drafter's forwards that are shared where the target's are
    not, and a commit that is nobody's."""
    made = [generation([5]), generation([15]), generation([10, 10])]
    found = costs(spent(*made), CPU)
    forwards = {"target_forwards": 10, "drafter_forwards": 7, "target_nodes": 40}
    assert found == pytest.approx(
        forwards
        | {"draft_ms": 2, "drafter_forward_ms": 1.5, "verify_ms": 3, "accept_ms": 0.75, "overhead": 1.25 / 5.75}
        | {"round_ms": 5.75}
    )


def test_on_a_gpu_a_round_has_a_time_and_its_parts_have_none():
    """Catches the host's times of launches taken for those of drafting and verifying, in a table or on the page."""
    lines = [line | {"head_ms": 1.0} for line in spent(generation([5]))]
    cpu, gpu = (costs(lines, torch.device(name)) for name in ("cpu", "cuda"))
    parts = {"draft_ms", "drafter_forward_ms", "verify_ms", "accept_ms", "head_ms", "overhead"}
    assert {key for key in cpu if gpu[key] is None} == parts
    assert gpu["round_ms"] == pytest.approx(5.75)
    row = {"drafter": "eagle", "acceptance": "exact", "tree": "t", **gpu}
    titles = format_table([row]).splitlines()[0]
    assert "round ms" in titles
    assert "draft ms" not in titles


@pytest.mark.parametrize("count", [4, 8, 24])
def test_speed_up_compares_sums_and_its_bounds_have_their_stated_coverage(count):
    """Catches percentiles of few prompts, which cover 81 times in 100 at four, and bounds wider than they need be."""
    rng = np.random.default_rng(0)
    ar, drift = rng.uniform(1, 3, size=200_000), rng.normal(2, 0.4, size=200_000).clip(0.5)
    truth = ar.sum() / (ar / drift).sum()
    found = []
    for trial in range(600):
        ar = rng.uniform(1, 3, size=count)
        method = ar / rng.normal(2, 0.4, size=count).clip(0.5)
        ratio, low, high = total_ratio(ar, method, samples=300, seed=trial)
        assert ratio == pytest.approx(ar.sum() / method.sum())
        assert low <= ratio <= high
        found.append((low, high))
    low, high = np.array(found).T
    assert 0.9 < ((low <= truth) & (truth <= high)).mean() < 0.98


def test_one_prompt_bounds_nothing():
    """Catches a speed-up that is certain because it was measured once, and bounds told of where there are none."""
    ratio, low, high = total_ratio([2.0], [1.0])
    assert ratio == 2
    assert np.isnan([low, high]).all()
    (told,) = speed_warnings({"speedup": ratio, "speedup_low": low, "speedup_high": high, "num_timed": 1})
    assert "apart" not in told


@pytest.mark.parametrize(("cores", "width", "count"), [(0.0, 0.0, 0), (0.1, 0.19, 0), (0.11, 0.19, 1), (0.1, 0.21, 1)])
def test_a_row_warns_above_a_tenth_of_a_core_and_of_a_tenth_of_the_speed_up(cores, width, count):
    """Catches limits that were moved, unseen, to where disturbed and uncertain speed-ups pass without a word."""
    row = {"speedup": 2.0, "speedup_low": 2 - width / 2, "speedup_high": 2 + width / 2, "num_timed": 8}
    assert len(speed_warnings(row | {"other_cores": cores})) == count
