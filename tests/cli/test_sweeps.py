import csv
import json
import os
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_class
from omegaconf import OmegaConf
from PIL import Image
from support.fake_pipeline import FakePipeline
from support.made_sweep import made_points
from support.paths import CONF

from lantern.cli.sweep_callback import SweepReport, find_conflict, report_sweep
from lantern.reporting.labels import label_rows
from lantern.reporting.merge import merge_points, point_folders
from lantern.reporting.page.write import read_content
from lantern.reporting.plots import draw_pareto, pareto_front
from lantern.reporting.published import FIGURES, published_keys
from lantern.reporting.quality_budget import Budget, ranked
from lantern.reporting.table import format_table
from lantern.reporting.wandb_runs import Tracker
from lantern.runtime.files import replace_text

SWEEPS = sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))
BUDGET = Budget({"frechet": 0.1})


def composed(*overrides: str):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("evaluate", list(overrides), return_hydra_config=True)


def sweep_points(cfg, *given: str) -> list[list[str]]:
    """The overrides of every point, with those given on the command line."""
    sweeper = get_class(cfg.hydra.sweeper._target_)(**{k: v for k, v in cfg.hydra.sweeper.items() if k != "_target_"})
    axes = [f"{key}={values}" for key, values in cfg.hydra.sweeper.params.items()]
    return sweeper.split_arguments(OverridesParser.create().parse_overrides([*axes, *given]), None)[0]


def settings_of(sweep: str) -> list[dict[str, str]]:
    """The overrides of every point, by name."""
    return [dict(override.split("=") for override in point) for point in sweep_points(composed(f"+sweep={sweep}"))]


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_runs_without_m_and_each_of_its_points_composes(name):
    cfg = composed(f"+sweep={name}")
    assert cfg.hydra.mode.name == "MULTIRUN"
    assert cfg.sweep.name == name
    assert find_conflict(name, cfg.sweep.requires, cfg.hydra.runtime.choices, []) is None
    points = sweep_points(cfg)
    for point in points[:: 1 + len(points) // 12]:  # of a large grid, some of it
        composed(f"+sweep={name}", *point)


METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
LAUNCHERS = {"joblib": "JoblibLauncher", "submitit_local": "LocalLauncher", "slurm": "SlurmLauncher"}


ELSEWHERE = {"cool_sd": ["tree=naive_extend_57"], "vvs": ["acceptance.skip=2"]}  # published by other papers


@pytest.mark.parametrize("name", OmegaConf.load(CONF / "published.yaml").published)
def test_every_published_figure_is_of_a_method_and_of_settings_that_can_be_run(name):
    """Catches figures that no row can show: a method that was renamed, a setting that the tables do not vary."""
    points = [point for point in sweep_points(composed("+sweep=paper")) if f"+method={name}" in point]
    made = [composed(*point) for point in points or [[f"+method={name}", *ELSEWHERE.get(name, [])]]]
    for entry in made[0].published[name]:
        assert entry.source
        assert (CONF / "model" / f"{entry.model}.yaml").is_file()
        figures = {f"published_{key}": entry[key] for key in FIGURES if key in entry}
        assert figures in [published_keys(described(cfg, entry.model), cfg.published) for cfg in made]


def described(cfg, model: str) -> dict[str, object]:
    """The keys of a result row that published figures are found by."""
    rule = {key: value for key, value in cfg.acceptance.items() if not key.startswith("_")}
    chosen = {"method": cfg.hydra.runtime.choices.method, "model": model, "tree": cfg.tree.get("name")}
    further = {f"acceptance.{key}": value for key, value in rule.items()}
    return {**chosen, **rule, **further, "temperature": cfg.sampling.temperature}


def methods_of(sweep: str) -> set[str]:
    return {settings["+method"] for settings in settings_of(sweep)}


def test_the_paper_sweep_runs_its_settings_at_both_temperatures():
    """Catches a method with published figures that the paper's tables leave out."""
    points = settings_of("paper")
    assert [point.pop("sampling.temperature") for point in points].count("0") == len(points) / 2 == 12
    assert all(points.count(point) == 2 for point in points)
    assert composed().published.keys() - ELSEWHERE.keys() <= methods_of("paper")


def test_the_command_line_replaces_axes_and_a_method_replaces_all_grids():
    """Catches a selection of methods that every grid runs again, with numbers that are another method's."""
    cfg = composed("+sweep=paper")
    assert len(sweep_points(cfg, "sampling.temperature=1")) == 12
    chosen = sweep_points(cfg, "+method=lantern", "acceptance.delta=0.1,0.2", "sampling.temperature=1")
    assert chosen == [["sampling.temperature=1", "+method=lantern", f"acceptance.delta={d}"] for d in (0.1, 0.2)]
    assert len(sweep_points(composed("+sweep=field"), "+method=jacobi,lantern")) == 2
    assert len(sweep_points(composed("+sweep=field"), "speed.num_prompts=1")) == 34


def test_every_method_is_in_a_sweep():
    """Catches one that no table shows, and a sweep of methods that are not there."""
    assert set.union(*map(methods_of, ("field", "paper", "equal_quality"))) == set(METHODS)


@cache
def choices_in_the_field() -> list[dict[str, str]]:
    return [composed(f"+method={method}").hydra.runtime.choices for method in methods_of("field")]


PUBLISHED_TREES = {"mc_sim_7b_63_balanced", "medusa_2_7b_63", "reverse_balanced_25"}


@pytest.mark.parametrize(
    ("group", "elsewhere"),
    [
        ("acceptance", set()),
        ("drafter", {"none", "eagle_random"}),  # the baseline, and what only times
        ("verification", {"auto", "shared_noise", "ratio"}),  # which auto chooses from
        ("tree", {"auto", "chain", *PUBLISHED_TREES}),
    ],
)
def test_the_field_has_every_way_of_decoding(group, elsewhere):
    """Catches a drafter, a rule, a kind of tree that no table compares; sizes and static trees have sweeps."""
    options = {path.stem for path in (CONF / group).glob("*.yaml")}
    assert options - elsewhere <= {choices[group] for choices in choices_in_the_field()}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_composes_beside_a_sweep(name):
    cfg = composed("+sweep=delta", f"+launch={name}")
    assert cfg.hydra.launcher._target_.endswith(LAUNCHERS[name])


def test_published_figures_stand_beside_ours_for_the_published_settings_alone():
    published = {"eagle1": [{"model": "xl", "temperature": 1, "k": 5, "speedup": 2.0, "source": "paper"}]}
    row = {"method": "eagle1", "model": "xl", "temperature": 1.0, "k": 5}
    assert published_keys(row, published) == {"published_speedup": 2.0, "published_source": "paper"}
    assert published_keys(row | {"temperature": 0.0}, published) == {}
    assert published_keys(row | {"model": "llamagen"}, published) == {}
    assert published_keys(row | {"method": "eagle2"}, published) == {}
    assert published_keys(row | {"k": 6}, published) == {}


def test_the_delta_sweep_is_lantern_on_the_static_tree():
    cfg = composed("+sweep=delta")
    assert cfg.acceptance._target_.endswith("Lantern")
    assert cfg.hydra.runtime.choices.tree == "static"
    *points, reference = sweep_points(cfg)
    assert [float(point[0].split("=")[1]) for point in points] == [0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.4]
    assert composed("+sweep=delta", *reference).acceptance._target_.endswith("Exact")


def test_a_reference_keeps_its_settings_and_shares_what_is_no_axis():
    """Catches a lossless reference that runs with the sweep's rule, with another tree's settings, or once for each
    value of the axis; and one that is drafted by other weights than the points."""
    own = ["+method=refined_jacobi", "drafter=refined_jacobi", "acceptance=exact"]
    given = ["acceptance.delta=0.1,0.2", "acceptance.k=10", "acceptance=lantern", "tree=chain", "tree.length=6"]
    *points, reference = sweep_points(composed("+sweep=delta"), *given, "drafter.checkpoint=x", "seed=3")
    assert [point[0] for point in points] == ["acceptance.delta=0.1", "acceptance.delta=0.2"]
    assert reference == [*own, "drafter.checkpoint=x", "seed=3"]
    *_, reference = sweep_points(composed("+sweep=delta"), "drafter=parallel", "drafter.checkpoint=x")
    assert reference == own
    assert all("acceptance=exact" not in point for point in sweep_points(composed("+sweep=delta"), "+method=lantern"))


def test_the_demos_sweep_also_has_the_shipped_drafter():
    """Catches a reference whose weights the command line replaces."""
    *_, trained, shipped = sweep_points(composed("+sweep=demo"), "drafter.checkpoint=x")
    assert composed("+sweep=demo", *trained).drafter.checkpoint == "x"
    config = composed("+sweep=demo", *shipped)
    assert config.drafter.checkpoint == f"{config.paths.weights}/drafter"


@pytest.mark.parametrize(("name", "rule"), [("delta", "lantern_pp"), ("lam", "lantern"), ("delta", "exact")])
def test_a_sweep_of_another_rules_setting_is_one_sentence_and_ends_the_program(name, rule):
    cfg = composed(f"+sweep={name}", f"acceptance={rule}")
    with pytest.raises(SystemExit) as ended:
        SweepReport().on_multirun_start(cfg)
    assert f"acceptance={rule}" in str(ended.value)
    assert "\n" not in str(ended.value)


def test_a_conflict_is_found_in_a_swept_group_too():
    choices = {"acceptance": "lantern"}
    assert find_conflict("delta", {"acceptance": "lantern"}, choices, ["acceptance=lantern,lantern_pp"])
    assert find_conflict("delta", {"acceptance": "lantern"}, choices, ["acceptance.delta=0.1,0.2"]) is None


def sweep_folder(folder: Path, deltas=(0.01, 0.1)) -> Path:
    made_points(folder, ["a", "b"], dict.fromkeys(deltas, FakePipeline))
    return folder


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


def test_a_sweeps_points_are_merged_into_one_table_and_its_figures(tmp_path, capsys):
    folder = sweep_folder(tmp_path)
    rows, figures = merge_points(folder, point_folders(folder), "delta sweep", BUDGET)
    assert label_rows(rows) == ["AR", "δ 0.01", "δ 0.1"]
    with (folder / "results.csv").open() as file:
        assert [row["delta"] for row in csv.DictReader(file)] == ["", "0.01", "0.1"]
    assert [figure.name for figure in figures] == ["pareto.png", "grid.png"]
    assert all(figure.stat().st_size > 1000 for figure in figures)
    assert [row["label"] for row in read_content(folder / "report.html")["rows"]] == ["AR", "δ 0.01", "δ 0.1"]
    printed = capsys.readouterr().out
    assert "speed-up" in printed
    assert "5.10 [4.10, 6.10]" in printed


def test_points_without_results_are_left_out(tmp_path, caplog):
    folder = sweep_folder(tmp_path)
    (folder / "2").mkdir()
    assert [point.name for point in point_folders(folder)] == ["0", "1"]
    report_sweep(tmp_path / "0" / "none", "delta", Tracker(mode="disabled"), BUDGET)
    assert "no point" in caplog.text


def test_the_report_is_made_at_exit_when_hydra_leaves_the_end_out(tmp_path, monkeypatch):
    folder, kept = sweep_folder(tmp_path), []
    monkeypatch.setattr("lantern.cli.sweep_callback.atexit.register", kept.append)
    cfg = composed("+sweep=delta", f"hydra.sweep.dir={folder}", "tracking.mode=disabled")
    callback = SweepReport()
    callback.on_multirun_start(cfg)
    kept[-1]()
    assert (folder / "report.html").is_file()
    (folder / "report.html").unlink()
    callback.on_multirun_end(config=cfg)
    assert not (folder / "report.html").exists()  # once only


def test_a_sweep_names_the_best_setting_under_its_budget_on_paper_too(tmp_path, capsys):
    folder = sweep_folder(tmp_path)
    report_sweep(folder, "delta", Tracker(mode="disabled"), BUDGET)
    best = "fastest by the lower bound, lossless or with frechet at most 10 % worse than plain decoding's: δ 0.01"
    assert best in capsys.readouterr().out
    best = json.loads((folder / "best.json").read_text())
    assert (best["setting"], best["row"]["delta"], best["budget"]["within"]) == ("δ 0.01", 0.01, {"frechet": 0.1})
    assert not best["certain"]  # 0.1 worse, and its bounds reach to 1.1
    assert best["lossless"] == "AR"
    assert best["times_as_fast"]["δ 0.01"] == pytest.approx({"AR": 1 / 0.59, "δ 0.1": 0.5 / 0.59})


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


def test_a_report_that_fails_is_a_failure(tmp_path):
    """Catches an exception that Hydra turns into a warning, and an exit status of 0."""
    (tmp_path / "results.csv").mkdir()
    folder = sweep_folder(tmp_path, deltas=(0.1,))
    report = SweepReport()
    report._sweep = composed("+sweep=delta", f"hydra.sweep.dir={folder}")
    with pytest.raises(SystemExit, match="the points are done, their report is not"):
        report.on_multirun_end()


def test_a_sweep_run_again_in_its_folder_reports_only_its_own_points(tmp_path):
    folder = sweep_folder(tmp_path, deltas=(0.01, 0.1, 0.4))
    for summary in folder.glob("*/summary.json"):
        os.utime(summary, (1, 1))
    (folder / "multirun.yaml").write_text("")
    os.utime(folder / "multirun.yaml", (2, 2))
    sweep_folder(folder, deltas=(0.2,))
    rows, _ = merge_points(folder, point_folders(folder), "again", BUDGET)
    assert [row["delta"] for row in rows] == [None, 0.2]


def test_points_are_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2):
        replace_text(tmp_path / str(number) / "summary.json", "{}")
    assert [point.name for point in point_folders(tmp_path)] == ["2", "10"]
