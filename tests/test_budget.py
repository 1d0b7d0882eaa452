import pytest

from lantern.budget import Budget
from lantern.errors import LanternError

AR = {"drafter": "none", "speedup": 1.0, "frechet": 5.0, "kernel": -0.1, "all_accuracy": 0.9}


def row(speedup: float, **values: float) -> dict:
    return {"drafter": "eagle", "speedup": speedup, **values}


def test_the_fastest_within_the_budget_is_best_and_not_the_fastest_of_all():
    rows = [AR, row(1.5, frechet=5.4), row(2.0, frechet=5.5), row(3.0, frechet=5.6)]
    assert Budget("frechet", 0.1).best(rows).row["speedup"] == 2.0


def test_a_share_may_fall_and_a_distance_below_zero_may_rise():
    rows = [AR, row(2.0, all_accuracy=0.85, kernel=-0.096), row(3.0, all_accuracy=0.8, kernel=-0.05)]
    assert Budget("all_accuracy", 0.1).best(rows).row["speedup"] == 2.0  # the limit is 0.81
    assert Budget("kernel", 0.1).best(rows).row["speedup"] == 2.0  # the limit is -0.09


def test_plain_decoding_is_best_where_nothing_else_keeps_the_budget():
    assert Budget("frechet", 0).best([AR, row(3.0, frechet=5.1)]).row is AR


def test_a_choice_is_certain_only_with_its_whole_interval_inside():
    inside, beyond = row(2.0, frechet=5.0, frechet_high=5.4), row(2.0, frechet=5.0, frechet_high=5.6)
    assert Budget("frechet", 0.1).best([AR, inside]).is_certain
    assert not Budget("frechet", 0.1).best([AR, beyond]).is_certain


def test_without_plain_decoding_or_its_metric_nothing_is_best():
    assert Budget("frechet", 0.1).best([row(2.0, frechet=5.0)]) is None
    assert Budget("frechet", 0.1).best([AR | {"frechet": None}, row(2.0, frechet=5.0)]) is None


@pytest.mark.parametrize(("metric", "within", "word"), [("frechet", -0.1, "negative"), ("odd", 0.1, "odd")])
def test_a_budget_that_means_nothing_is_one_sentence(metric, within, word):
    with pytest.raises(LanternError, match=word):
        Budget(metric, within)
