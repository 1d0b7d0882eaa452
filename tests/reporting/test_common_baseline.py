"""Speed-ups over baselines that differ, made comparable."""

import numpy as np
import pytest

from lantern.reporting.common_baseline import OVER_FASTEST, over_fastest, speed_key
from lantern.reporting.plots import pareto_front
from lantern.reporting.quality_budget import Budget
from lantern.reporting.table import format_value

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
    assert rows[2][f"{OVER_FASTEST}_low"] == pytest.approx(0.9 * 2.0)
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


def test_baselines_that_were_timed_once_each_have_a_quotient_without_bounds():
    """Catches one timing of each kind taken as known, so that a row's bounds are those over its own plain decoding, and
    a row whose bounds are unknown that wins by its point."""
    rows = over_fastest([row(9.0, 0.9, compile=False), row(2.0, 0.6, compile=True)])
    assert [found[OVER_FASTEST] for found in rows] == pytest.approx([6.0, 2.0])
    assert [found.get(f"{OVER_FASTEST}_low") for found in rows] == [None, pytest.approx(1.8)]
    assert format_value(rows[0], OVER_FASTEST) == "6.00"
    assert BUDGET.best(rows).row is rows[1]


def test_what_is_decoded_is_not_compared():
    """Catches decoding without guidance, which takes half the time, as the baseline of decoding with it."""
    rows = [row(2.0, 0.8, cfg_scale=2.0), row(2.0, 0.4, cfg_scale=1.0)]
    assert over_fastest(rows) == rows
    mixed = over_fastest([*rows, row(2.0, 0.2, cfg_scale=1.0, compile=True)])
    assert [found[OVER_FASTEST] for found in mixed] == pytest.approx([2.0, 1.0, 2.0])
    assert OVER_FASTEST not in over_fastest([*mixed, {"model": "m", "drafter": "eagle", "frechet": 5.0}])[-1]


def test_the_bounds_over_the_fastest_hold_the_spread_of_both_baselines():
    """Catches means of plain decoding in different minutes that are taken as known."""
    plain = [row(2.0, seconds, compile=False, k=k) for k, seconds in enumerate((0.9, 1.0, 1.1))]
    compiled = [row(1.5, seconds, compile=True, k=k) for k, seconds in enumerate((0.54, 0.6, 0.66))]
    rows = over_fastest([*plain, *compiled])
    logs = np.log([0.9, 1.0, 1.1])
    error = 2.776445 * logs.std(ddof=1) * (2 / 3) ** 0.5  # Student's t with 4 degrees of freedom
    for end, sign, own in (("low", -1, 0.9), ("high", 1, 1.1)):
        margin = np.hypot(error, np.log(own))
        assert rows[0][f"{OVER_FASTEST}_{end}"] == pytest.approx(1.2 * np.exp(sign * margin), rel=1e-6)
        assert rows[3][f"{OVER_FASTEST}_{end}"] == pytest.approx(1.5 * own)


def test_compiled_plain_decoding_that_was_timed_in_turn_is_the_measure():
    """Catches a paired ratio given up for one of means, also where the machine drifted between the kinds, so that means
    say that compiled plain decoding is the slower one."""
    paired = {"speedup_over_compiled": 1.1, "speedup_over_compiled_low": 1.05, "speedup_over_compiled_high": 1.15}
    own, other = over_fastest([row(2.0, 0.9, compile=False, **paired), row(1.5, 0.6, compile=True)])
    assert [own[f"{OVER_FASTEST}{end}"] for end in ("", "_low", "_high")] == pytest.approx([1.1, 1.05, 1.15])
    assert other[OVER_FASTEST] == 1.5
    drifted = over_fastest([row(2.0, 0.6, compile=False, **paired), row(1.5, 0.9, compile=True)])
    assert drifted[0][OVER_FASTEST] == 1.1
    slower = over_fastest([row(2.0, 0.6, compile=False, speedup_over_compiled=3.0), row(1.5, 0.9, compile=True)])
    assert slower[0][OVER_FASTEST] == 2.0


def test_a_row_without_bounds_has_none_over_the_fastest():
    alone = row(2.0, 0.9, compile=False) | {"speedup_low": None, "speedup_high": None}
    (found, _) = over_fastest([alone, row(1.5, 0.6, compile=True)])
    assert OVER_FASTEST in found
    assert f"{OVER_FASTEST}_low" not in found
