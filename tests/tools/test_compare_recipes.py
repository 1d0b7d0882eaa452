"""The comparison of recipes reads what training and decoding have left, and takes unfinished runs for what they are."""

import csv
from pathlib import Path

import pytest
from support.commands import run_script, trainings_here
from support.made_recipes import made_run, write_metrics
from support.tiny_weights import write_tiny_weights

from lantern.errors import LanternError
from tools import compare_recipes
from tools.compare_recipes import main, run_folders, run_row, validations
from tools.miniature import write_captioned_scenes


def rows_of(sweep: Path) -> list[dict[str, str]]:
    with (sweep / "recipes.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_row_is_the_validation_whose_weights_were_exported(tmp_path):
    """Catches figures of the last step in place of the best one's."""
    row = run_row(made_run(tmp_path / "late_unroll-1", 4.5))
    known = {"recipe": "late_unroll", "seed": 1, "steps": 300, "step_s": 0.5, "parameters": 15, "sim_agree_len": 3.0}
    assert row.items() >= (known | {"tokens_per_step/refined_jacobi": 4.5, "exported_step": 200}).items()


def test_of_a_resumed_run_the_later_validations_count(tmp_path):
    folder = made_run(tmp_path / "hass-0")
    write_metrics(folder / "metrics-1.csv", {100: 1.0, 200: 1.5, 300: 9.0})
    write_metrics(folder / "metrics-2.csv", {200: 1.6, 300: 9.0})
    write_metrics(folder / "metrics.csv", {300: 1.7, 400: 1.8})
    lengths = [(line["step"], line["val/sim_agree_len"]) for line in validations(folder)]
    assert lengths == [(100, 1.0), (200, 1.6), (300, 1.7), (400, 1.8)]


def test_an_unfinished_run_is_left_out(tmp_path):
    made_run(tmp_path / "lk-0")
    (tmp_path / "lk-0" / "checkpoints").mkdir(parents=True)
    (made_run(tmp_path / "hass-0") / "drafter" / "model.safetensors").unlink()  # killed while it was exported
    assert [run.name for run in run_folders(tmp_path)] == ["lk-0"]
    with pytest.raises(LanternError, match=r"hydra\.sweep\.dir"):
        main([str(tmp_path / "lk-0")])


@pytest.mark.full
def test_a_recipe_is_trained_and_decoded_with_and_a_second_start_repeats_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(compare_recipes, "run_program", lambda line: run_script(monkeypatch, "evaluate.py", *line[2:]))
    write_tiny_weights(tmp_path / "weights", side=8)
    write_captioned_scenes(tmp_path / "images", 12, side=8)
    common = [f"paths.weights={tmp_path}/weights", f"paths.cache_dir={tmp_path}/cache", "device=cpu", "dtype=float32"]
    train = [
        "-m", "+sweep=recipe", "recipe=lk", "seed=0", *common, "logger.wandb=null",
        "data=imagefolder", f"data.folder={tmp_path}/images", "data.size=64", "data.validation_share=0.3",
        "batches.splits.validation.num_images=2",
        "batches.batch_size=4", "batches.validation_batch_size=2", "trainer.max_time=null", "trainer.max_steps=3",
        "trainer.val_check_interval=2", "trainer.accelerator=cpu", "distil.validation_depth=2",
        f"hydra.sweep.dir={tmp_path}/sweep",
    ]  # fmt: skip
    few = ["prompts=[wood]", "speed.num_prompts=1", "speed.max_retimed=0"]
    made = []
    with trainings_here(monkeypatch):
        for _ in range(2):
            run_script(monkeypatch, "train.py", *train)
            main([f"{tmp_path}/sweep", "--decode", *common, *few])
            paths = [*tmp_path.glob("sweep/*/drafter/*"), *tmp_path.glob("sweep/*/decoded/*/prompts.jsonl")]
            made.append({path: path.stat().st_mtime_ns for path in paths})
    assert made[0] == made[1]
    ways = ("chain5_ratio", "chain5_shared_noise", "static_shared", "refined_jacobi", "refined_branches")
    (row,) = rows_of(tmp_path / "sweep")
    assert (tmp_path / "sweep" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert all(float(row[f"tokens_per_step/{way}"]) >= 1 for way in ways)
