"""The demo's sizes: they fit the minutes given, whatever the machine."""

from dataclasses import replace

import pytest

from lantern.studies.demo_plan import RESERVE, SIZES, TRAINING_IMAGES, Timings, plan_demo, sweep_s

FAST = Timings(0.8, 0.15, 0.4, {"tree=chain tree.length=3": 0.6, "tree=chain tree.length=6": 0.45, "tree=static": 0.7})
SLOW = Timings(2.8, 0.6, 1.4, {"tree=chain tree.length=3": 1.9, "tree=chain tree.length=6": 1.6, "tree=static": 3.0})


def size_of(plan) -> int:
    return SIZES.index(plan.size)


@pytest.mark.parametrize(("minutes", "timings"), [(5, FAST), (8, SLOW), (20, SLOW), (60, FAST)])
def test_the_demo_fits_its_minutes_with_the_reserve_left(minutes, timings):
    """Catches a part that is not counted, and a reserve that is spent."""
    plan = plan_demo(minutes, timings, spent_s=15)
    assert plan.expected_s <= (1 - RESERVE) * 60 * minutes + 1
    assert plan.training_s >= 50
    assert plan.size.deltas


def test_more_minutes_and_faster_machines_make_larger_demos():
    """Catches a comparison that runs the wrong way."""
    small, long, fast = plan_demo(8, SLOW, 15), plan_demo(20, SLOW, 15), plan_demo(8, FAST, 5)
    assert size_of(small) < size_of(long)
    assert size_of(small) < size_of(fast)
    assert small.training_s < long.training_s
    assert (small.training_images, long.training_images) == TRAINING_IMAGES[::-1]


def test_the_smallest_sweep_is_left_where_nothing_fits():
    plan = plan_demo(0.5, SLOW, 15)
    assert plan.size == SIZES[0]
    assert plan.expected_s > 30  # and it says so


def test_every_larger_size_takes_longer():
    """Catches sizes out of order, of which the largest that fits would not be the last."""
    costs = [sweep_s(size, FAST) for size in SIZES]
    assert costs == sorted(set(costs))


def test_the_tree_is_the_one_on_which_lantern_is_fastest():
    assert plan_demo(5, FAST, 0).tree == "tree=chain tree.length=6"
    assert plan_demo(5, replace(FAST, trees=FAST.trees | {"tree=static": 0.1}), 0).tree == "tree=static"


def test_the_plan_is_said_in_two_sentences_with_its_numbers():
    plan = plan_demo(8, SLOW, 15)
    machine, chosen = plan.sentences()
    assert "2.8 s" in machine
    assert f"{plan.training_s} s of training" in chosen
    assert f"{plan.size.num_images} judged" in chosen
