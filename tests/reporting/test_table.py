"""Result rows for readers: columns, labels, the table with its warnings, and the plot of speed against price."""

import re

import pytest

from lantern.reporting.plots import pareto_front
from lantern.reporting.table import format_table, label_rows

SHARED = {"model": "m", "tree": "static", "seed": 0, "acceptance": "exact", "temperature": 1.0}
AR = SHARED | {"drafter": "none"}


def test_rows_of_several_methods_bear_their_names():
    """Catches rows labelled by hashes and parts where the name of the method is enough."""
    rows = [
        AR,
        SHARED | {"drafter": "window", "method": "jacobi"},
        SHARED | {"drafter": "eagle", "method": "eagle2"},
        SHARED | {"drafter": "eagle", "method": "eagle2", "temperature": 0.5},
        SHARED | {"drafter": "eagle"},
    ]
    assert label_rows(rows) == ["AR", "jacobi", "eagle2 temperature 1", "eagle2 temperature 0.5", "exact static"]
    assert label_rows(rows[:1] + rows[2:4]) == ["AR", "temperature 1", "temperature 0.5"]
    lantern = [SHARED | {"drafter": "eagle", "method": "lantern", "delta": delta} for delta in (0.1, 0.2)]
    assert label_rows([rows[1], *lantern]) == ["jacobi", "lantern δ 0.1", "lantern δ 0.2"]


def test_where_a_method_has_two_drafters_every_row_names_its_own():
    """Catches a relaxed row beside a method's rows with a trained and a shipped drafter that does not say which it
    has."""
    shipped, trained = ({"drafter_hash": name, "drafter_name": f"{name}/drafter"} for name in ("weights", "train"))
    window = SHARED | {"drafter": "window", "method": "refined"}
    rows = [AR, window | shipped, window | trained, *(SHARED | shipped | {"drafter": "eagle", "k": k} for k in (1, 2))]
    expected = ["AR", "refined weights/drafter", "refined train/drafter"]
    expected += ["exact weights/drafter k 1", "exact weights/drafter k 2"]
    assert label_rows(rows) == expected
    assert label_rows([rows[0], rows[1], *rows[3:]]) == ["AR", "refined", "exact k 1", "exact k 2"]


def test_an_output_tv_stands_beside_its_floor_and_its_positions_and_says_when_it_has_no_bounds():
    """Catches a floor that a reader takes for a price, and one image's estimate that looks as certain as a bounded
    one."""
    tv = {"drafter": "eagle", "output_tv": 0.125, "output_tv_floor": 0.0312, "output_tv_positions": 24}
    bounds = {"output_tv_low": 0.1, "output_tv_high": 0.15}
    rows = [SHARED | tv | bounds | {"tree": "a"}, SHARED | tv | {"tree": "b"}]
    titles, _, bounded, single = (re.split("  +", line) for line in format_table(rows).splitlines())
    assert titles[1:] == ["output TV", "TV floor", "TV positions"]
    assert bounded[1:] == ["0.12 [0.10, 0.15]", "0.0312", "24"]
    assert single[1:] == ["0.12 (no bounds)", "0.0312", "24"]


@pytest.mark.parametrize(("judged", "shown"), [({}, True), ({"frechet": 1.0}, False), ({"x_accuracy": 0.5}, False)])
def test_differences_from_plain_decoding_are_printed_where_nothing_else_judges_images(judged, shown):
    rows = [SHARED | {"tree": tree, "equal_images": 0.5, "image_diff": 0.01} | judged for tree in "ab"]
    assert ("image diff" in format_table(rows)) is shown


def test_the_front_drops_what_is_beaten_in_both():
    rows = [{"speedup": s, "frechet": f} for s, f in ((1, 5), (2, 4), (3, 6), (2.5, 7))]
    assert [(row["speedup"], row["frechet"]) for row in pareto_front(rows, "frechet")] == [(2, 4), (3, 6)]
