"""Result rows for readers: columns, labels, the table with its warnings, and the plot of speed against price."""

import re

import pytest

from lantern.figures import FIGURES
from lantern.reporting.plots import draw_pareto, limits_of, pareto_front, price_of
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


def test_a_table_fits_its_terminal_by_what_matters_least():
    """Catches lines that a terminal of 100 letters breaks, and a column that is gone without a word."""
    figures = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "tokens_per_step": 3.0, "output_tv": 0.125}
    figures |= {key: 1.25 for key in ("latency_s", "round_ms", "draft_ms", "verify_ms", "accept_ms", "target_forwards")}
    rows = [SHARED | figures | {"drafter": "eagle", "tree": tree, "within_budget": verdict}
            for tree, verdict in (("static", "open"), ("eagle2", "no"))]  # fmt: skip
    whole, narrow = format_table(rows), format_table(rows, 80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()[:4]))
    assert all(title in narrow.splitlines()[0] for title in ("speed-up", "tokens per step", "output TV"))
    assert "in results.csv: " in narrow
    assert "accept ms" in narrow.split("in results.csv: ")[1]
    assert "open, by the values alone" in whole


def test_plain_decoding_stands_in_every_panel_and_bounds_that_leave_it_set_no_axis(tmp_path):
    """Catches a plot of output TV without its reference, a front of settings slower than plain decoding, and points in
    a corner beside one bound of 40."""
    plain = {"drafter": "none", "speedup": 1.0}
    rows = [{"speedup": 0.5, "output_tv": 0.1}, {"speedup": 2.0, "output_tv": 0.2}]
    rows[1] |= {"speedup_low": 1.9, "speedup_high": 40.0}
    priced = [row | {"output_tv": price_of(row, FIGURES["output_tv"])} for row in (plain, *rows)]
    assert [row["speedup"] for row in pareto_front(priced, "output_tv")] == [1.0, 2.0]
    low, high = limits_of(priced, "speedup")
    assert (low < 0.5, 2.0 < high < 3.0) == (True, True)
    shared = {"acceptance": "exact", "tree": "t"}
    assert draw_pareto([shared | row for row in (plain, *rows)], ["AR", "a", "b"], tmp_path / "pareto.png").is_file()
