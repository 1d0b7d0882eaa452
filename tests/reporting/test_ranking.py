"""The winner of a sweep: its budget, the order of its rows, and best.json."""

import json
from math import inf

import numpy as np
import pytest

from lantern.errors import LanternError
from lantern.metrics.intervals import total_ratio
from lantern.reporting.ranking import Budget, rank_rows, report_best
from lantern.reporting.table import format_table

AR = {"drafter": "none", "speedup": 1.0, "frechet": 5.0, "kernel": -0.1, "recall": 0.9, "lossless": True}


def row(speedup: float, **values: float) -> dict:
    return {"drafter": "eagle", "speedup": speedup, **values}


def worse(speedup: float, by: float, high: float = 9.0, **others: float) -> dict:
    return row(speedup, frechet=5.0 + by, frechet_diff=by, frechet_diff_high=high, **others)


def test_the_fastest_within_the_budget_is_best_and_not_the_fastest_of_all():
    rows = [AR, worse(1.5, 0.4), worse(2.0, 0.5), worse(3.0, 0.6)]
    assert Budget({"frechet": 0.1}).best(rows).row["speedup"] == 2.0
    assert Budget({"frechet": 0.0}).best([AR, worse(3.0, 0.1)]).row is AR


def test_the_lower_bound_of_a_speed_up_ranks_and_not_its_point():
    """Catches one slow image of plain decoding that makes a setting the winner of a sweep."""
    noisy = worse(1.67, 0.0) | {"speedup_low": 0.79, "speedup_high": 3.76}
    steady = worse(1.09, 0.0) | {"speedup_low": 1.02, "speedup_high": 1.17}
    unknown = worse(2.0, 0.0) | {"speedup_low": float("nan")}
    rows = [AR | {"speedup_low": 1.0}, noisy, steady, unknown]
    assert Budget({"frechet": 0.1}).best(rows).row is steady
    named = [row | {"method": str(number)} for number, row in enumerate(rows)]
    assert [row["speedup"] for row in rank_rows(named, Budget({"frechet": 0.1}))] == [1.0, 1.09, 1.67, 2.0]


def test_a_share_may_fall_and_a_distance_below_zero_may_rise():
    rows = [
        AR,
        row(2.0, recall=0.85, recall_loss=0.05, kernel=-0.096, kernel_diff=0.004),
        row(3.0, recall=0.8, recall_loss=0.1, kernel=-0.05, kernel_diff=0.05),
    ]
    assert Budget({"recall": 0.1}).best(rows).row["speedup"] == 2.0  # 0.09 may be lost
    assert Budget({"kernel": 0.1}).best(rows).row["speedup"] == 2.0  # 0.01 may be gained
    assert Budget({}, {"recall": 0.04}).best(rows).row is AR


def test_a_choice_is_certain_only_with_its_whole_interval_inside():
    assert Budget({"frechet": 0.1}).best([AR, worse(2.0, 0.0, high=0.4)]).is_certain
    assert not Budget({"frechet": 0.1}).best([AR, worse(2.0, 0.0, high=0.6)]).is_certain


def test_where_the_bounds_decide_every_limit_has_to_hold():
    """Catches limits of which one is enough, and a value that stands in for its bounds."""
    both = Budget({"frechet": 0.1}, {"recall": 0.02}, proven=True)
    recalled = {"recall": 0.9, "recall_loss": 0.0, "recall_loss_high": 0.01}
    inside, open_, lost = worse(2.0, 0, 0.4, **recalled), worse(3.0, 0, 0.6, **recalled), worse(4.0, 0, 0.4, recall=0.9)
    lost |= {"recall_loss": 0.03, "recall_loss_high": 0.04}
    assert [both.verdict(r) for r in (inside, open_, lost)] == ["yes", "open", "no"]
    assert both.best([AR, inside, open_, lost]).row is inside


def test_what_is_proven_of_the_fastest_of_many_takes_more():
    """Catches a lossy setting that keeps a limit by chance, as one of ten that are as bad as the limit does in 22 %."""
    proven = Budget({"frechet": 0.1}, proven=True)
    near, clear = worse(3.0, 0.2, 0.45, num_images=64), worse(2.0, 0.2, 0.3, num_images=64)
    assert proven.best([AR, near]).row is near
    tried = [AR, near, clear, *(worse(4.0, 0.9, 1.0, k=k) for k in range(8))]
    assert proven.best(tried).row is clear
    assert [row["within_budget"] for row in rank_rows(tried, proven)[1:3]] == ["open", "yes"]
    assert Budget({"frechet": 0.1}).best(tried).row is near


def test_a_figure_of_the_setting_itself_may_have_a_limit():
    """Catches a search that takes the fastest setting of all, and one that cannot tell near from far."""
    wanted = Budget({}, most={"output_tv": 0.1})
    sure = row(2.0, output_tv=0.06, output_tv_high=0.09)
    open_, single = row(2.5, output_tv=0.09, output_tv_high=0.12), row(2.2, output_tv=0.09)
    beyond, unknown = row(3.0, output_tv=0.3, output_tv_high=0.4), row(4.0)
    assert [wanted.verdict(r) for r in (sure, open_, single, beyond, unknown)] == ["yes", "open", "open", "no", None]
    assert wanted.best([AR, sure, open_, beyond, unknown]).row is open_
    assert Budget({}, most={"output_tv": 0.1}, proven=True).best([AR, sure, open_]).row is sure
    assert [wanted.excess(r) for r in (sure, beyond, unknown)] == [0, pytest.approx(0.2), inf]
    assert wanted.excess(row(1.5, output_tv=0.2, lossless=True)) == 0
    assert "output TV at most 0.1" in wanted.describe([])
    with pytest.raises(LanternError, match=r"budget\.most\.speedup"):
        Budget({}, most={"speedup": 1.0})


def test_it_is_said_where_no_setting_is_proven_faster_than_plain_decoding(tmp_path, capsys):
    """Catches a winner by chance: the best of several that are no faster."""
    shared = {"acceptance": "exact", "tree": "t", "lossless": True, "speedup_high": 1.4}
    rows = [AR, *(row(1.2, speedup_low=low, k=k, **shared) for k, low in enumerate((0.9, 1.02)))]
    budget = Budget({"frechet": 0.1})
    report_best(tmp_path, rows, budget, budget.best(rows))
    told = capsys.readouterr().out
    assert "no setting is proven faster than plain decoding" in told  # 1.02 is the best of two
    assert "[1.00, 1.43]: its lower bound in the table, 1.02, is the largest of 2 settings; the bounds here are" in told
    report_best(tmp_path, rows[:1] + rows[2:], budget, budget.best(rows[:1] + rows[2:]))
    assert not any(word in capsys.readouterr().out for word in ("proven", "wider"))


def test_few_images_prove_nothing():
    """Catches bounds of a distance that is mostly bias, whose shares are no limit."""
    wanted = Budget({"frechet": 0.1}, proven=True, min_images=2000)
    few, many, bad = (worse(2.0, by, by + 0.1) | {"num_images": n} for by, n in ((0, 1999), (0, 2000), (0.7, 96)))
    assert [wanted.verdict(r) for r in (few, many, bad)] == ["open", "yes", "no"]
    fast, enough = worse(3.0, 0.1, num_images=10), worse(2.0, 0.1, num_images=500)
    assert Budget({"frechet": 0.1}, min_images=500).best([AR, fast, enough]).row is enough


def test_a_lossless_setting_is_within_every_budget_judged_or_not():
    """Catches rounding's noise in a distance that puts a lossless method out."""
    exact = worse(2.0, 0.7) | {"lossless": True}
    assert Budget({"frechet": 0.1}, proven=True).best([AR, exact, row(3.0)]).row is exact
    assert Budget({"frechet": 0.1}).verdict(row(2.0, lossless=True)) == "lossless"


def test_where_nothing_was_judged_nothing_is_best():
    assert Budget({"frechet": 0.1}).best([AR, row(2.0, frechet=5.0)]) is None
    assert Budget({"frechet": 0.1}).best([worse(2.0, 0.1) | {"speedup": None}]) is None
    assert Budget({"frechet": None}).best([AR, worse(2.0, 9.0)]).row["speedup"] == 2.0  # null is no limit


@pytest.mark.parametrize(("metric", "within", "word"), [
    ("frechet", -0.1, "frechet=-0.1 is no limit"), ("odd", 0.1, "odd"), ("speedup", 0.1, "difference"),
    ("image_diff", 0.1, "image_diff: rows hold no difference of it"),
    ("recall_loss", 0.1, "budget.within.recall"),
])  # fmt: skip
def test_a_budget_that_means_nothing_is_one_sentence(metric, within, word):
    with pytest.raises(LanternError, match=word):
        Budget({metric: within})


@pytest.mark.parametrize(
    "key", ["device", "threads", "torch", "dtype", "compile", "tf32", "cuda_graphs", "prompts_hash", "split"]
)
def test_the_largest_group_of_rows_that_were_timed_alike_is_ranked(tmp_path, key):
    """Catches a winner by a speed-up over plain decoding on another device, number of threads or other prompts, or over
    uncompiled one: a key that is left out of those that say what was timed alike."""
    shared = {"acceptance": "exact", "tree": "t", "lossless": True, "frechet": 5.0}
    rows = [row(speedup, k=speedup, **shared, **{key: kind}) for speedup, kind in ((1.5, 2), (9.0, 1), (2.0, 2))]
    plain = [AR | {"acceptance": "exact", "tree": "none", key: kind} for kind in (1, 2, 4, 8)]
    budget = Budget({"frechet": 0.1})
    best = budget.best([*plain, *rows])
    assert (best.row["speedup"], best.candidates) == (2.0, 2)
    report_best(tmp_path, [*plain, *rows], budget, best)
    record = json.loads((tmp_path / "best.json").read_text())
    assert record["row"][key] == 2


def test_the_bounds_of_the_winner_cover_its_true_speed_after_few_prompts():
    """Catches normal quantiles on Student's bounds: of the best of 14 settings timed with 4 prompts they cover three
    times in four."""
    rng, budget, inside = np.random.default_rng(1), Budget({"frechet": 0.1}), []
    for _ in range(60):
        rows = []
        for k in range(14):
            plain, method = rng.lognormal(0, 0.04, 4), rng.lognormal(-0.02, 0.2, 4)  # both of mean 1, nearly
            found = total_ratio(plain, method, samples=500, seed=k)
            rows.append({"drafter": "eagle", "lossless": True, "k": k, "num_timed": 4, **found.keys("speedup")})
        best = budget.best(rows).corrected
        inside.append(best["speedup_low"] <= 1 <= best["speedup_high"])
    assert np.mean(inside) >= 0.9


def test_rows_of_several_methods_come_fastest_first_those_of_equal_quality_before_the_others():
    """Catches a table in the order of the sweep, and one that a fast bad method leads."""
    shared = {"drafter": "eagle", "acceptance": "a", "tree": "t", "frechet": 5.0}
    rows = [
        AR | {"acceptance": "exact", "tree": "none"},
        shared | {"method": "bad", "speedup": 9.0, "frechet_diff": 2.0, "frechet_diff_high": 3.0},
        shared | {"method": "unjudged", "speedup": 8.0, "frechet": None},
        shared | {"method": "slow", "speedup": 1.5, "lossless": True, "drafter_hash": "abc"},
        shared | {"method": "fast", "speedup": 2.0, "frechet_diff": 0.1, "frechet_diff_high": 0.3},
        shared | {"method": "open", "speedup": 3.0, "frechet_diff": 0.1, "frechet_diff_high": 0.9},
        shared | {"method": "compiled", "speedup": 4.0, "lossless": True, "compile": True},
    ]
    table = rank_rows(rows, Budget({"frechet": 0.1}))
    assert [row.get("method") for row in table] == [None, "fast", "slow", "open", "bad", "unjudged", "compiled"]
    assert [row["within_budget"] for row in table[:-1]] == ["lossless", "yes", "lossless", "open", "no", None]
    words = [line.split()[1:4] for line in format_table(table).splitlines()[2:]]
    assert words[1:3] == [["lossy", "yes", "training-free"], ["lossless", "yes", "trained"]]
    assert [row.get("method") for row in rank_rows(rows[:2], Budget({"frechet": 0.1}))] == [None, "bad"]


def test_rows_of_a_machine_that_was_not_the_same_throughout_are_warned_of():
    """Catches a tenfold plain decoding that nobody sees, one of another guidance, a lost warning."""
    timed = {"speedup": 1.5, "cfg_scale": 2.0, "baseline_latency_s": 2.0}
    rows = [timed | {"drafter": name} for name in ("jacobi", "eagle")]
    ranked = Budget({"frechet": 0.1})
    assert not any(row.get("warnings") for row in rank_rows(rows, ranked))
    rows[1] |= {"baseline_latency_s": 20.0, "warnings": "its own"}
    told = [row["warnings"] for row in rank_rows(rows, ranked)]
    assert all("2 to 20 s" in warned for warned in told)
    assert told[1].startswith("its own | ")
    rows[1] |= {"cfg_scale": 1.0}
    assert rank_rows(rows, ranked)[1]["warnings"] == "its own"
