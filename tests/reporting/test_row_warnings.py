"""Warnings below the table: each once, with the rows that have it."""

from support.fake_pipeline import FakePipeline

from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.plan import Plan
from lantern.evaluation.rows import WARNING_BREAK
from lantern.reporting.merge import merge_points, point_folders
from lantern.reporting.quality_budget import Budget
from lantern.reporting.row_warnings import warning_lines
from lantern.reporting.run_folder import write_measurements

AR = {"drafter": "none", "acceptance": "exact", "tree": "none"}
FAST, SLOW = ({"drafter": "eagle", "acceptance": "lantern", "tree": "static", "delta": delta} for delta in (0.1, 0.2))
BIAS = "29 images for 64 features: the distance is biased; compare it at equal N only"


def test_a_warning_of_several_rows_is_one_line_with_their_labels():
    """Catches a sweep that repeats a sentence for every point, and one that is cut at its own semicolon."""
    busy = ["other processes kept 1.5 cores busy", "other processes kept 0.2 cores busy"]
    rows = [
        AR | {"warnings": BIAS},
        FAST | {"warnings": WARNING_BREAK.join([busy[0], BIAS])},
        SLOW | {"warnings": WARNING_BREAK.join([busy[1], BIAS])},
    ]
    assert warning_lines(rows) == [
        f"warning (all rows): {BIAS}",
        "warning (δ 0.1, δ 0.2): other processes kept 0.2 to 1.5 cores busy",
    ]
    assert warning_lines([AR | {"warnings": None}, FAST]) == []


class Warner:
    """A metric of one warning."""

    def prepare(self, prompts):
        """Nothing is kept."""

    def __call__(self, images, prompts):
        return {}

    def against(self, images, plain, prompts):
        return {}

    def protocol(self, prompts):
        return {}

    def warnings(self, prompts):
        return [BIAS]


def test_a_sweep_warns_once_below_its_table_and_keeps_the_warning_in_its_rows(tmp_path, capsys, caplog):
    """Catches a warning that is logged while points are measured, or lost."""
    for number, delta in enumerate((0.1, 0.2)):
        plan = Plan(["a", "b"], 0, 2, 2, folder=tmp_path / str(number), shared=tmp_path)
        evaluation = Evaluation(plan, {"w": Warner()})
        write_measurements(tmp_path / str(number), evaluation.run(FakePipeline(delta=delta)))
    assert BIAS not in caplog.text + capsys.readouterr().out
    rows, _ = merge_points(tmp_path, point_folders(tmp_path), "delta sweep", Budget({"frechet": 0.1}))
    printed = capsys.readouterr().out
    assert printed.count(BIAS) == 1
    assert printed.index("tokens/step") < printed.index(BIAS)
    assert [row["warnings"] for row in rows] == [BIAS] * 3
