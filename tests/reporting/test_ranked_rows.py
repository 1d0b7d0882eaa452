"""Labels and order of rows, the table in the terminal, and the plot of speed against price."""

from PIL import Image

from lantern.reporting.labels import label_rows
from lantern.reporting.plots import draw_pareto, pareto_front
from lantern.reporting.quality_budget import Budget, ranked
from lantern.reporting.table import format_table, format_value

BUDGET = Budget({"frechet": 0.1})


def test_rows_of_several_methods_bear_their_names():
    """Catches rows labelled by hashes and parts where the name of the method is enough."""
    shared = {"model": "m", "tree": "static", "seed": 0, "acceptance": "exact", "temperature": 1.0}
    rows = [
        shared | {"drafter": "none"},
        shared | {"drafter": "window", "method": "jacobi"},
        shared | {"drafter": "eagle", "method": "eagle2"},
        shared | {"drafter": "eagle", "method": "eagle2", "temperature": 0.5},
        shared | {"drafter": "eagle"},
    ]
    assert label_rows(rows) == ["AR", "jacobi", "eagle2 temperature 1", "eagle2 temperature 0.5", "exact static"]
    assert label_rows(rows[:1] + rows[2:4]) == ["AR", "temperature 1", "temperature 0.5"]
    assert label_rows(rows[1:2]) == ["exact static"]
    lantern = [shared | {"drafter": "eagle", "method": "lantern", "delta": delta} for delta in (0.1, 0.2)]
    assert label_rows([rows[1], *lantern]) == ["jacobi", "lantern δ 0.1", "lantern δ 0.2"]


def test_the_only_relaxed_row_beside_references_shows_its_bound():
    """Catches a LANTERN row whose δ is left out because no other row has one."""
    shared = {"model": "m", "tree": "chain_6", "acceptance": "lantern", "drafter": "eagle", "delta": 0.1}
    reference = {**shared, "tree": "none", "acceptance": "exact", "delta": None, "method": "refined_jacobi"}
    assert label_rows([reference, shared]) == ["refined_jacobi", "lantern chain_6 δ 0.1"]


def test_rows_of_several_methods_come_fastest_first_those_of_equal_quality_before_the_others():
    """Catches a table in the order of the sweep, and one that a fast bad method leads."""
    shared = {"drafter": "eagle", "acceptance": "a", "tree": "t", "frechet": 5.0}
    rows = [
        {"drafter": "none", "acceptance": "exact", "tree": "none", "speedup": 1.0, "lossless": True},
        shared | {"method": "bad", "speedup": 9.0, "frechet_diff": 2.0, "frechet_diff_high": 3.0},
        shared | {"method": "unjudged", "speedup": 8.0, "frechet": None},
        shared | {"method": "slow", "speedup": 1.5, "lossless": True, "drafter_hash": "abc"},
        shared | {"method": "fast", "speedup": 2.0, "frechet_diff": 0.1, "frechet_diff_high": 0.3},
        shared | {"method": "open", "speedup": 3.0, "frechet_diff": 0.1, "frechet_diff_high": 0.9},
    ]
    table = ranked(rows, BUDGET)
    assert [row.get("method") for row in table] == [None, "fast", "slow", "open", "bad", "unjudged"]
    assert [row["within_budget"] for row in table] == ["lossless", "yes", "lossless", "open", "no", None]
    words = [line.split()[1:4] for line in format_table(table).splitlines()[2:]]
    assert words[1:3] == [["lossy", "training-free", "yes"], ["lossless", "trained", "yes"]]
    assert [row.get("method") for row in ranked(rows[:2], BUDGET)] == [None, "bad"]


def test_the_front_drops_what_is_beaten_in_both():
    rows = [{"speedup": s, "frechet": f} for s, f in ((1, 5), (2, 4), (3, 6), (2.5, 7))]
    assert [(row["speedup"], row["frechet"]) for row in pareto_front(rows, "frechet")] == [(2, 4), (3, 6)]


def test_no_pareto_plot_without_both_figures(tmp_path):
    assert draw_pareto([{"speedup": 1.0, "frechet": None}], ["AR"], tmp_path / "pareto.png") is None


def test_the_plot_has_a_panel_for_each_price_that_was_measured(tmp_path):
    row = {"drafter": "eagle", "speedup": 2.0, "output_tv": 0.1, "num_images": 4}
    one, two = ([row | {"frechet": value}] for value in (None, 5.0))
    widths = [Image.open(draw_pareto(rows, ["a"], tmp_path / "pareto.png")).width for rows in (one, two)]
    assert widths[1] > 1.8 * widths[0]


def test_a_table_leaves_out_what_was_not_measured():
    row = {
        "drafter": "eagle",
        "acceptance": "exact",
        "tree": "static",
        "speedup": 2.0,
        "latency_s": 0.5,
        "frechet": None,
    }
    assert "Fréchet" not in format_table([row])
    assert "exact static" in format_table([row])


def test_bounds_have_the_digits_of_their_figure():
    """Catches 0.00781 [0.00, 0.01]."""
    bounds = {"output_tv_low": 0.00391, "output_tv_high": 0.1172}
    assert format_value({"output_tv": 0.00781, **bounds}, "output_tv") == "0.00781 [0.00391, 0.117]"
    assert format_value({"output_tv": 0.25, **bounds}, "output_tv") == "0.25 [0.00, 0.12]"
