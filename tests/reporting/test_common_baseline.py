"""Speed-ups over baselines that differ, made comparable."""

import pytest

from lantern.reporting.common_baseline import OVER_FASTEST, over_fastest, speed_key
from lantern.reporting.plots import pareto_front
from lantern.reporting.quality_budget import Budget

BUDGET = Budget({"frechet": 0.1})


def row(speedup: float, seconds: float, **values: object) -> dict:
    """A row by its speed-up over plain decoding that takes `seconds` an image."""
    found = {"model": "m", "drafter": "eagle", "lossless": True, "speedup": speedup, "baseline_latency_s": seconds}
    return found | {"speedup_low": 0.9 * speedup, "speedup_high": 1.1 * speedup, "frechet": 5.0, **values}


def test_the_fastest_of_a_sweep_over_compile_is_the_one_that_takes_the_least_time():
    """Catches an uncompiled setting, 2.4 times as fast as slow plain decoding, that wins over a compiled one, 2.0 times
    as fast as plain decoding that takes two thirds of the time."""
    plain = row(1.0, 0.9, drafter="none", compile=False)
    rows = over_fastest([plain, row(2.4, 0.9, compile=False), row(2.0, 0.6, compile=True)])
    assert [found[OVER_FASTEST] for found in rows] == pytest.approx([2 / 3, 1.6, 2.0])
    assert rows[1][f"{OVER_FASTEST}_low"] == pytest.approx(0.9 * 1.6)
    best = BUDGET.best(rows)
    assert best.row is rows[2]
    assert best.ranked_by == f"{OVER_FASTEST}_low"
    assert pareto_front(rows, "frechet") == [rows[2]]


def test_timings_of_one_baseline_are_averaged_and_differ_only_by_the_machine():
    """Catches a point that wins since the machine was slower when its plain decoding was timed, and a column where all
    have one baseline."""
    rows = [row(2.0, 0.8, tree="a"), row(1.9, 1.0, tree="b")]
    assert over_fastest(rows) == rows
    assert speed_key(rows[0]) == "speedup"
    drifted = over_fastest([*rows, row(1.5, 0.45, compile=True)])
    assert [found[OVER_FASTEST] for found in drifted] == pytest.approx([1.0, 0.95, 1.5])


def test_what_is_decoded_is_not_compared():
    """Catches decoding without guidance, which takes half the time, as the baseline of decoding with it."""
    rows = [row(2.0, 0.8, cfg_scale=2.0), row(2.0, 0.4, cfg_scale=1.0)]
    assert over_fastest(rows) == rows
    mixed = over_fastest([*rows, row(2.0, 0.2, cfg_scale=1.0, compile=True)])
    assert [found[OVER_FASTEST] for found in mixed] == pytest.approx([2.0, 1.0, 2.0])
    assert OVER_FASTEST not in over_fastest([*mixed, {"model": "m", "drafter": "eagle", "frechet": 5.0}])[-1]
