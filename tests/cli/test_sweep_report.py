"""What a sweep ends with: its points merged into a table, figures and the best setting, also where some failed."""

import csv
import json
import signal
from pathlib import Path

import pytest
from support.commands import refusal, run_script
from support.configs import composed_with_hydra
from support.fake_pipeline import FakePipeline
from support.made_sweep import made_points
from support.pages import read_content

from lantern.cli.error_messages import at_end, without_hints
from lantern.cli.sweep_callback import SweepReport
from lantern.evaluation.rows import SUMMARY
from lantern.reporting.merge import merge_points, point_folders
from lantern.reporting.publish import report_sweep
from lantern.reporting.ranking import Budget
from lantern.reporting.table import label_rows
from lantern.reporting.wandb_runs import Tracker
from lantern.runtime.files import replace_text

BUDGET = Budget({"frechet": 0.1})


@pytest.fixture(autouse=True)
def no_other_sweep():
    at_end.clear()
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    at_end.clear()


def sweep_folder(folder: Path, deltas=(0.01, 0.1)) -> Path:
    made_points(folder, ["a", "b"], dict.fromkeys(deltas, FakePipeline))
    return folder


def test_a_sweeps_points_are_merged_into_one_table_and_its_figures(tmp_path, capsys):
    folder = sweep_folder(tmp_path)
    rows = merge_points(folder, point_folders(folder), "delta sweep", BUDGET)
    assert label_rows(rows) == ["AR", "δ 0.01", "δ 0.1"]
    with (folder / "results.csv").open() as file:
        assert [row["delta"] for row in csv.DictReader(file)] == ["", "0.01", "0.1"]
    assert all((folder / name).stat().st_size > 1000 for name in ("pareto.png", "grid.png"))
    assert [row["label"] for row in read_content(folder / "report.html")["rows"]] == ["AR", "δ 0.01", "δ 0.1"]
    assert "5.10 [4.10, 6.10]" in capsys.readouterr().out


def begun(folder: Path, *settings: str) -> SweepReport:
    """The report of a sweep under way."""
    callback = SweepReport()
    cfg = composed_with_hydra("evaluate", *settings, f"hydra.sweep.dir={folder}", "tracking.mode=disabled")
    callback.on_multirun_start(cfg)
    return callback


def test_what_no_point_can_score_is_said_once_and_before_anything_is_loaded(tmp_path, monkeypatch):
    """Catches a model loaded for each point to say that four images are too few, and metrics that no point has."""
    monkeypatch.setattr("lantern.cli.run_setting.one_at_a_time", lambda _: pytest.fail("a model is loaded"))
    few = ("evaluate.py", "-m", "quality.num_images=4", f"hydra.sweep.dir={tmp_path}")
    said = refusal(monkeypatch, *few, "seed=0,1")
    assert said == "error: quality.num_images=4: give a whole number, 8 … 1000000, or 0 for no metrics"
    run_script(monkeypatch, *few, "metrics=[pairs],[accuracy]", "dry_run=true")


@pytest.mark.parametrize("ended", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_the_report_is_made_at_the_commands_end_when_hydra_leaves_it_out(ended, tmp_path, caplog):
    """Catches "fix any errors" where a signal has ended the sweep, and an end by SIGTERM without a sentence."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # another test's training may have left its own

    @without_hints
    def command() -> None:
        begun(tmp_path, "+sweep=delta")
        sweep_folder(tmp_path)
        if ended is SystemExit:
            signal.raise_signal(signal.SIGTERM)
        raise ended

    with pytest.raises(ended):
        command()
    assert ("fix any errors" in caplog.text) == (ended is ZeroDivisionError)
    assert ("SIGTERM" in caplog.text) == (ended is SystemExit)
    assert (tmp_path / "report.html").is_file()
    assert not at_end


def test_a_sweep_names_the_best_setting_under_its_budget_on_paper_too(tmp_path, capsys):
    folder = sweep_folder(tmp_path)
    report_sweep(folder, "delta", Tracker(mode="disabled"), BUDGET)
    best = "fastest setting, lossless or with Fréchet at most 10 % worse than plain decoding's: δ 0.01"
    assert best in capsys.readouterr().out
    best = json.loads((folder / "best.json").read_text())
    assert (best["setting"], best["row"]["delta"], best["budget"]["within"]) == ("δ 0.01", 0.01, {"frechet": 0.1})
    assert not best["certain"]  # 0.1 worse, and its bounds reach to 1.1
    assert best["lossless"] == "AR"
    assert best["speedup_low"] <= best["speedup"] <= best["speedup_high"]


class Search:
    """A sweeper that chooses its points as it goes and names a winner of its own, as Optuna's does."""


@pytest.mark.parametrize(("budget", "told"), [("frechet", "by speedup as"), ("output_tv", "beyond the budget")])
def test_a_searchs_own_winner_is_told_from_the_fastest_setting(budget, told, tmp_path, capsys):
    """Catches two winners without a word of which is which, and a search that found nothing with a best value."""
    search = f"hydra.sweeper._target_={__name__}.Search"
    callback = begun(tmp_path, "optimized_metric=speedup", search, f"budget={budget}")
    sweep_folder(tmp_path)
    callback.report_failed()
    assert f"the sweeper's best is {told}" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "title"), [
    (["seed=0,1", "dtype=float32", "+method=glob(*)"], "seed, method sweep"), (["dtype=float32"], "sweep"),
])  # fmt: skip
def test_a_sweep_without_a_name_is_titled_by_what_it_varies(given, title, tmp_path):
    """Catches a page called by nothing that its reader knows."""
    callback = begun(tmp_path)
    callback._sweep.hydra.overrides.task = given
    sweep_folder(tmp_path)
    callback.report_failed()
    assert read_content(tmp_path / "report.html")["title"] == f"Lantern: {title}"


def test_a_report_that_fails_is_a_failure(tmp_path, caplog):
    """Catches an exception that Hydra turns into a warning, and a traceback behind the error of a failed point."""
    (tmp_path / "results.csv").mkdir()
    failed, ended = begun(tmp_path, "+sweep=delta"), begun(tmp_path, "+sweep=delta")
    sweep_folder(tmp_path, deltas=(0.1,))
    failed.report_failed()
    with pytest.raises(SystemExit, match="the points are done, their report is not"):
        ended.on_multirun_end()
    (record,) = caplog.records
    assert record.exc_info is None


def test_a_sweep_run_again_in_its_folder_reports_only_its_own_points(tmp_path):
    """Catches results of points that only an earlier sweep had."""
    folder = sweep_folder(tmp_path, deltas=(0.01, 0.1, 0.4))
    begun(folder, "+sweep=delta")
    sweep_folder(folder, deltas=(0.2,))
    rows = merge_points(folder, point_folders(folder), "again", BUDGET)
    assert [row["delta"] for row in rows] == [None, 0.2]


def test_what_an_earlier_sweep_has_drawn_and_chosen_does_not_outlive_it(tmp_path):
    """Catches the best setting and the plot of other rows beside a table without quality."""
    folder = sweep_folder(tmp_path)
    written = [folder / name for name in ("best.json", "pareto.png", "grid.png")]
    report_sweep(folder, "delta", Tracker(mode="disabled"), BUDGET)
    assert all(path.is_file() for path in written)
    for summary in folder.glob(f"*/{SUMMARY}"):
        rows = json.loads(summary.read_text())
        replace_text(summary, json.dumps({name: row | {"frechet": None} for name, row in rows.items()}))
        (summary.parent / "prompts.jsonl").write_text("")
    report_sweep(folder, "delta", Tracker(mode="disabled"), BUDGET)
    assert not any(path.exists() for path in written)


def test_points_without_results_are_left_out_and_counted(tmp_path, caplog):
    """Catches a report that looks whole while jobs of a launcher go on."""
    callback = begun(tmp_path, "+sweep=delta")
    (sweep_folder(tmp_path) / "2").mkdir()
    callback.report_failed()
    assert [point.name for point in point_folders(tmp_path)] == ["0", "1"]
    assert "points without results: 6 of 8" in caplog.text
