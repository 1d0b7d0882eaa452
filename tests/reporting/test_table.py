"""Result rows for readers: columns, labels, the table with its warnings, and the plot of speed against price."""

import pytest
from PIL import Image
from support.paths import ROOT

from lantern.evaluation.rows import WARNING_BREAK
from lantern.reporting.plots import draw_pareto, pareto_front
from lantern.reporting.table import KNOWN, better, columns_of, format_table, format_value, label_rows, warning_lines

SHARED = {"model": "m", "tree": "static", "seed": 0, "acceptance": "exact", "temperature": 1.0}
AR = SHARED | {"drafter": "none"}


def test_the_glossary_has_every_number():
    """Catches a number that was added, renamed or explained anew in the code alone."""
    _, _, table = (ROOT / "docs" / "glossary.md").read_text().partition("| key | title | meaning |\n|---|---|---|\n")
    assert table == "".join(f"| `{column.key}` | {column.title} | {column.meaning} |\n" for column in KNOWN)


def test_unknown_metrics_become_columns_and_interval_ends_do_not():
    row = {"seed": 0, "acceptance.eps": 0.1, "speedup": 1.5, "speedup_low": 1, "speedup_high": 2, "clip_score": 0.3}
    assert [column.key for column in columns_of([row | {"odd": 1, "name": "x"}])] == ["speedup", "clip_score", "odd"]
    assert [better(key) for key in ("clip_score", "odd", "frechet", "shape_accuracy")] == ["high", "", "low", "high"]


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


def test_a_row_without_a_method_shows_its_bound_and_two_drafters_their_folders():
    """Catches a LANTERN row whose δ is left out because no other row has one, and hashes that tell nothing."""
    alone = SHARED | {"acceptance": "lantern", "drafter": "eagle", "delta": 0.1}
    assert label_rows([SHARED | {"drafter": "w", "method": "jacobi"}, alone]) == ["jacobi", "lantern static δ 0.1"]
    named = {"own": "train/drafter", "shipped": "weights/drafter", "c0ffee": None}
    rows = [SHARED | {"drafter": "w", "drafter_hash": key, "drafter_name": name} for key, name in named.items()]
    assert label_rows(rows) == ["train/drafter", "weights/drafter", "c0ffee"]


def test_a_table_leaves_out_what_was_not_measured():
    row = SHARED | {"drafter": "eagle", "speedup": 2.0, "latency_s": 0.5, "frechet": None}
    assert "Fréchet" not in format_table([row])
    assert "exact static" in format_table([row])


def test_bounds_have_the_digits_of_their_figure():
    """Catches 0.00781 [0.00, 0.01]."""
    bounds = {"output_tv_low": 0.00391, "output_tv_high": 0.1172}
    assert format_value({"output_tv": 0.00781, **bounds}, "output_tv") == "0.00781 [0.00391, 0.117]"
    assert format_value({"output_tv": 0.25, **bounds}, "output_tv") == "0.25 [0.00, 0.12]"


def test_a_warning_of_several_rows_is_one_line_with_their_labels():
    """Catches a sweep that repeats a sentence for every point, and one that is cut at its own semicolon."""
    bias = "29 images for 64 features: the distance is biased; compare it at equal N only"
    rows = [AR | {"warnings": bias}]
    for delta, cores in ((0.1, 1.5), (0.2, 0.2)):
        busy = f"other processes kept {cores} cores busy"
        rows.append(SHARED | {"drafter": "eagle", "delta": delta, "warnings": WARNING_BREAK.join([busy, bias])})
    assert warning_lines(rows) == [
        f"warning (all rows): {bias}",
        "warning (δ 0.1, δ 0.2): other processes kept 1.5 cores busy (numbers of the first row)",
    ]
    assert warning_lines([AR | {"warnings": None}, *rows[:0]]) == []


def test_the_front_drops_what_is_beaten_in_both():
    rows = [{"speedup": s, "frechet": f} for s, f in ((1, 5), (2, 4), (3, 6), (2.5, 7))]
    assert [(row["speedup"], row["frechet"]) for row in pareto_front(rows, "frechet")] == [(2, 4), (3, 6)]


@pytest.mark.parametrize(("frechet", "panels"), [(None, 1), (5.0, 2)])
def test_the_plot_has_a_panel_for_each_price_that_was_measured(tmp_path, frechet, panels):
    row = {"drafter": "eagle", "speedup": 2.0, "output_tv": 0.1, "num_images": 4, "frechet": frechet}
    width = Image.open(draw_pareto([row], ["a"], tmp_path / "pareto.png")).width
    assert (width > 1300) == (panels == 2)
    assert draw_pareto([row | {"output_tv": None, "frechet": None}], ["a"], tmp_path / "none.png") is None
