"""Result rows for readers: columns, labels, the table with its warnings, and the plot of speed against price."""

import re
from itertools import combinations

import pytest

from lantern.reporting.plots import draw_pareto, limits_of
from lantern.reporting.ranking import Budget, rank_rows
from lantern.reporting.table import format_table, label_rows, shared_settings

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
    assert label_rows([rows[1] | {"seed": 20240101 + more} for more in (0, 1)]) == ["seed 20240101", "seed 20240102"]


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


def test_settings_of_all_methods_are_those_that_every_one_has():
    window = SHARED | {"drafter": "jacobi", "tree": "window_15", "drafter.length": 15}
    said = shared_settings([AR, window, SHARED | {"drafter": "eagle"}])
    assert said.startswith("All methods: model m, acceptance exact, temperature 1.0, seed 0. ")


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
    """Catches lines that a terminal of 100 letters breaks, a column that is gone without a word, an output TV without
    its floor, and seconds beside a speed-up without those of plain decoding that it is over."""
    figures = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "tokens_per_step": 3.0, "output_tv": 0.125}
    figures |= {key: 1.25 for key in ("latency_s", "round_ms", "draft_ms", "verify_ms", "accept_ms", "target_forwards")}
    figures |= {"output_tv_floor": 0.03, "baseline_latency_s": 2.5}
    rows = [SHARED | figures | {"drafter": "eagle", "tree": tree, "within_budget": verdict}
            for tree, verdict in (("static", "open"), ("eagle2", "no"))]  # fmt: skip
    whole, narrow = format_table(rows), format_table(rows, 80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()[:4]))
    assert all(title in narrow.splitlines()[0] for title in ("speed-up", "tokens per step", "output TV"))
    assert "in report.html: " in narrow
    assert "accept ms" in narrow.split("in report.html: ")[1]
    assert "open, by the values alone" in whole
    heads = [format_table(rows, width).splitlines()[0] for width in range(30, 200)]
    assert {(head.count("output TV"), head.count("TV floor")) for head in heads} == {(0, 0), (1, 1)}
    assert {head.count("s per image") for head in heads} == {0, 2}


def test_a_narrow_terminal_shows_the_price_before_tokens_and_both_before_words_about_a_setting():
    """Catches a table of 100 letters a line that says "trained" and "yes" where its output TV should stand."""
    tv = {"output_tv": 0.123, "output_tv_low": 0.101, "output_tv_high": 0.154, "output_tv_floor": 0.0312}
    figures = tv | {"speedup": 2.13, "speedup_low": 0.72, "speedup_high": 7.63, "tokens_per_step": 3.1}
    trained = {"drafter": "window", "method": "refined_jacobi", "lossless": True, "drafter_hash": "abc"}
    lossy = {"drafter": "eagle", "method": "lantern_pp_released", "within_budget": "open"}
    rows = [SHARED | figures | trained, SHARED | figures | lossy]
    tables = {width: format_table(rows, width) for width in (80, 100, 120)}
    price, whole = ["speed-up", "output TV", "TV floor"], ["speed-up", "tokens per step", "output TV", "TV floor"]
    assert {width: re.split("  +", table.splitlines()[0])[1:] for width, table in tables.items()} == {
        80: price, 100: ["law", *whole], 120: ["law", "budget", "drafter", *whole],
    }  # fmt: skip
    assert "in report.html: law, budget, drafter, tokens per step" in tables[80]
    assert ["open, by the values" in table for table in tables.values()] == [False, False, True]
    assert [("all settings are lossless" in format_table(some)) for some in (rows, rows[:1] * 2)] == [False, True]


def test_a_panel_has_its_reference_a_front_of_rows_that_compare_and_axes_that_values_set(monkeypatch):
    """Catches output TV without plain decoding; a front of settings slower than it, of the noise in lossless methods'
    estimates, of rows whose plain decoding was timed otherwise, or of distances of other numbers of images; and points
    in a corner beside one bound of 40."""
    drawn, method = [], {"drafter": "eagle", "num_images": 96}
    monkeypatch.setattr("lantern.reporting.plots.save_figure", lambda figure, _: drawn.append(figure))
    tv = {"output_tv": 0.02, "output_tv_low": 0.01, "output_tv_high": 0.03}
    rows = [method | {"drafter": "none", "speedup": 1.0, "frechet": 5.0}]
    rows += [method | {"speedup": 0.5, "frechet": 5.3, "output_tv": 0.1}]
    rows += [method | {"speedup": 1.5, "frechet": 5.1, "lossless": True} | tv]
    rows += [method | {"speedup": 1.8, "frechet": 5.2, "lossless": True, "output_tv": 0.03}]
    rows += [method | {"speedup": 2.0, "frechet": 6.0, "output_tv": 0.2, "speedup_low": 1.9, "speedup_high": 40.0}]
    rows += [method | {"speedup": 4.0, "frechet": 5.0, "output_tv": 0.1, "compile": True}]
    rows += [method | {"speedup": 3.0, "frechet": 1.0, "num_images": 8}]
    draw_pareto(rank_rows(rows, Budget({})), "abcdefg", "pareto.png")
    fronts = {axes.get_ylabel(): axes.lines[0].get_xydata().tolist() for axes in drawn[0].axes}
    assert fronts == {
        "output TV (down is better; lossless: 0)": [[1.8, 0.0], [2.0, 0.2]],
        "Fréchet, 96 images (down is better)": [[1.0, 5.0], [1.5, 5.1], [1.8, 5.2], [2.0, 6.0]],
    }
    low, high = drawn[0].axes[0].get_xlim()
    assert (low < 0.5, 4.0 < high < 6.0) == (True, True)
    assert "pale: not ranked" in drawn[0].axes[0].get_xlabel()


def test_a_label_covers_no_point_and_no_other_label_and_one_further_away_has_a_line(monkeypatch):
    """Catches a crowd of settings in which a name stands on another's point, or nobody knows whose it is."""
    drawn = []
    monkeypatch.setattr("lantern.reporting.plots.save_figure", lambda figure, _: drawn.append(figure))
    rows = [AR | {"speedup": 1.0}, SHARED | {"drafter": "eagle", "speedup": 3.0, "output_tv": 1.0}]
    rows += [SHARED | {"drafter": "eagle", "speedup": 1.5 + k / 25, "lossless": True, "output_tv": 0} for k in range(5)]
    rows += [SHARED | {"drafter": "eagle", "speedup": 2 + k / 20, "output_tv": 0.4 + k / 33} for k in range(5)]
    draw_pareto(rows, [f"setting {k:02}" for k in range(len(rows))], "pareto.png")
    texts = drawn[0].axes[0].texts
    labels, lines = [text for text in texts if text.get_text()], [text.xy for text in texts if not text.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    points = drawn[0].axes[0].transData.transform([label.xy for label in labels])
    assert not any(box.contains(*point) for box in boxes for point in points)
    assert not any(one.fully_overlaps(other) for one, other in combinations(boxes, 2))
    assert lines == [label.xy for label in labels if not -11 <= label.get_position()[1] <= 11] != []


def test_an_axis_of_lossless_methods_alone_begins_at_zero():
    low, high = limits_of([{"output_tv": 0.0}] * 2, "output_tv")
    assert -0.01 < low < 0 < 0.1 < high
