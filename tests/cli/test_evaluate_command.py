"""The command itself on a miniature model, in a process of its own where its threads are what is tested."""

import csv

import pytest
from PIL import Image
from support.commands import python, run_script
from support.paths import ROOT

from lantern.evaluation.rows import read_rows
from lantern.runtime.cores import usable_cores

LASTING = ("setting", "part", "method", "prompt", "copy", "tokens", "steps")
METHODS = ("eagle2", "lantern_pp", "block", "sjd", "rows", "jacobi_paths")  # of each kind of row
SMALL = [
    "output_tv.num_positions=4", "speed.num_prompts=1", "speed.max_retimed=0", "quality.num_images=8",
    "metrics.fidelity.num_references=16", "dtype=float32",
]  # fmt: skip
pytestmark = pytest.mark.full
UNTRACKED = [*SMALL, "tracking.mode=disabled"]


@pytest.fixture
def run(weights, tmp_path, monkeypatch):
    """evaluate.py in this process."""
    monkeypatch.chdir(ROOT)

    def evaluate(*overrides: str) -> None:
        run_script(monkeypatch, "evaluate.py", f"paths.runs={tmp_path}", f"paths.weights={weights}", *overrides)

    return evaluate


def test_a_sweep_continues_after_a_failing_point_and_reports_it(run, tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"acceptance\.delta=2 is out of range; give 0 to 1"):
        run("+sweep=delta", "acceptance.delta=0,2,0.4", f"hydra.sweep.dir={tmp_path}/s", *SMALL)
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert "δ 0.4" in told.out
    folder = tmp_path / "s"
    made = {path.name for path in folder.iterdir() if path.is_file()}
    assert {"results.csv", "pareto.png", "grid.png", "report.html"} <= made
    assert len(list((folder / "ar").iterdir())) == 1
    assert len(list(folder.glob("*/wandb/offline-run-*"))) == 3  # of the two points and the lossless reference
    assert len(list(folder.glob("wandb/offline-run-*"))) == 2  # the baseline and the summary


def test_methods_of_every_kind_run_to_their_rows(run, tmp_path):
    """Catches a row that no report can hold. That the parts of every method fit: tests/test_embedded_model.py."""
    quick = [*UNTRACKED, "quality.num_images=0", "output_tv.num_positions=0"]
    run("+sweep=field", f"+method={','.join(METHODS)}", f"hydra.sweep.dir={tmp_path}/s", *quick)
    with open(tmp_path / "s" / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"", *METHODS}
    assert all(row["speedup"] for row in rows)


def test_with_both_sizes_zero_only_images_are_written(run, tmp_path):
    off = ["speed.num_prompts=0", "quality.num_images=0", 'prompts=["a blue ring on wood","sand"]']
    run(f"hydra.run.dir={tmp_path}/run", *off)
    names = sorted(path.name for path in (tmp_path / "run" / "images").iterdir())
    assert names == ["00000-a-blue-ring-on-wood.png", "00001-sand.png"]
    assert not (tmp_path / "run" / "report.html").exists()


def test_the_benchmark_writes_passes_and_a_row_a_tree_and_batch_size(run, tmp_path):
    small = ["study.batch_sizes=[1,2]", "study.num_nodes=[1,4]", "study.num_prompts=2", "dtype=float32"]
    run("+experiment=benchmark", f"hydra.run.dir={tmp_path}/run", *small)
    rows = read_rows(tmp_path / "run" / "benchmark.jsonl")
    assert [row["nodes"] for row in rows[:2]] == [1, 4]
    assert [(row["batch"], row["tree"]) for row in rows[2:]] == [
        (size, tree) for size in (1, 2) for tree in ("none", "chain", "static", "auto")
    ]
    assert all((row["speedup"] == 1) is (row["is"] == "none") for row in rows[2:])


def test_the_default_command_measures_both_parts_and_shards_give_the_same_rows(run, tmp_path):
    run(f"hydra.run.dir={tmp_path}/one", "batch_size=1", *UNTRACKED)
    folder = tmp_path / "shards"
    shards = ["hydra.mode=MULTIRUN", "shards=2", "shard=0,1", "batch_size=1", f"hydra.sweep.dir={folder}"]
    run(*shards, *UNTRACKED)
    before = {path: path.stat().st_size for path in folder.rglob("*/prompts.jsonl")}
    run(f"hydra.run.dir={folder}", "batch_size=1", *UNTRACKED)
    assert {path: path.stat().st_size for path in before} == before
    lines = [
        sorted(tuple(line[key] for key in LASTING) for line in read_rows(path / "prompts.jsonl"))
        for path in (tmp_path / "one", folder)
    ]
    assert lines[0] == lines[1]
    (baseline, method), (_, other) = (read_rows(path / "results.jsonl") for path in (tmp_path / "one", folder))
    figures = ("tokens_per_step", "frechet", "frechet_diff_high", "kernel", "all_accuracy", "output_tv")
    assert [method[key] for key in figures] == [other[key] for key in figures]
    assert all(method[key] is not None for key in (*figures, "speedup"))
    assert [baseline["drafter"], method["acceptance"], method["tree"]] == ["none", "exact", "static"]
    assert (tmp_path / "one" / "provenance.json").is_file()


def test_a_finished_point_is_not_run_again_unless_its_references_have_changed(run, tmp_path, capsys):
    """Catches the distance from images that are no longer there."""
    folder = f"{tmp_path}/run"
    setting = [f"hydra.run.dir={folder}", "acceptance=lantern_pp", "acceptance.lam=3", *UNTRACKED]
    setting += ["metrics=[fidelity]", f"metrics.fidelity.references={tmp_path}/real"]
    (tmp_path / "real").mkdir()
    for number in range(12):
        Image.new("RGB", (32, 32), (20 * number, 9, 9)).save(tmp_path / "real" / f"{number}.png")
    run(*setting)
    capsys.readouterr()
    run(*setting, "tracking.mode=offline")  # what was not tracked then is tracked now
    assert "is finished" in capsys.readouterr().out
    assert len(rows := read_rows(f"{folder}/results.jsonl")) == 2 == len([*(tmp_path / "run").glob("wandb/offline*")])
    Image.new("RGB", (32, 32), (255, 255, 255)).save(tmp_path / "real" / "0.png")
    run(*setting)
    assert read_rows(f"{folder}/results.jsonl")[-1]["frechet"] != rows[-1]["frechet"]


def test_points_side_by_side_share_the_ar_images_and_end_in_one_table(weights, tmp_path, monkeypatch):
    """Those of submitit: tests/slurm."""
    folder = tmp_path / "s"
    sweep = ["+sweep=delta", "acceptance.delta=0,0.4", "+launch=joblib", f"hydra.sweep.dir={folder}"]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    done = python("evaluate.py", f"paths.runs={tmp_path}", f"paths.weights={weights}", *sweep, *SMALL)
    assert "δ 0.4" in done.stdout
    (shared,) = (folder / "ar").iterdir()
    lines = read_rows(shared / "prompts.jsonl")
    assert len(lines) == 8  # made by one of the points, found by the other
    assert (folder / "report.html").is_file()
    assert all(path.stat().st_size for path in folder.rglob("*.log"))  # a log without a line is not there
    rows = [row for path in folder.glob("*/results.jsonl") for row in read_rows(path)]
    assert len(list(folder.glob("wandb/offline-run-*"))) == 2  # the baseline and the summary, of this process alone
    assert {row["threads"] for row in rows} == {max(1, len(usable_cores()) // 2)}
