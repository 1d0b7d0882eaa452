"""The comparison of drafter recipes, on made-up run folders: what is read, bounds, ranking, and the page."""

import pytest
from support.made_recipes import STEPS, WAY, made_run, write_metrics

from lantern.errors import LanternError
from lantern.evaluation.rows import append_rows, read_rows
from lantern.metrics.intervals import total_ratio
from lantern.reporting.recipe_page import write_recipe_page
from lantern.reporting.recipe_runs import run_folders, run_row, validations
from lantern.reporting.recipe_table import columns, format_recipes, recipe_rows

T_TWO_SEEDS, T_THREE_SEEDS = 12.7062, 4.30265  # Student's t, 97.5 %, 1 and 2 degrees of freedom


def runs(folder, tokens: dict[str, float]):
    """Rows of trained drafters, by run name; the runs are read from disk."""
    for name, value in tokens.items():
        made_run(folder / name, value)
    return [run_row(run) for run in run_folders(folder)]


def test_the_kept_validation_is_reported_and_the_time_is_of_all_steps(tmp_path):
    """Catches a row of the last validation, whose weights are not the exported ones."""
    row = run_row(made_run(tmp_path / "hass-3", lengths=(2.0, 3.0, 2.5)))
    assert (row["recipe"], row["seed"], row["parameters"]) == ("hass", 3, 15)
    assert (row["sim_agree_len"], row["sim_accept_len"], row["alpha_1"]) == (3.0, 4.0, pytest.approx(0.3))
    assert (row["steps"], row["step_s"], row["other_cores"]) == (300, 0.5, 0.25)
    assert (row["draft_ms/refined_jacobi"], row["other_cores/refined_jacobi"]) == (12.0, 0.5)


def test_of_a_run_that_was_killed_and_resumed_the_later_validations_count(tmp_path):
    """Catches curves that go back in time: steps after the last checkpoint are trained again."""
    folder = made_run(tmp_path / "hass-0")
    write_metrics(folder / "metrics-1.csv", {100: 1.0, 200: 1.5, 300: 9.0})
    write_metrics(folder / "metrics-2.csv", {200: 1.6, 300: 9.0})
    write_metrics(folder / "metrics.csv", {300: 1.7, 400: 1.8})
    found = [(line["step"], line["val/sim_agree_len"]) for line in validations(folder)]
    assert found == [(100, 1.0), (200, 1.6), (300, 1.7), (400, 1.8)]


def test_an_unfinished_run_is_left_out(tmp_path):
    made_run(tmp_path / "lk-0")
    (tmp_path / "race-0" / "checkpoints").mkdir(parents=True)
    (made_run(tmp_path / "hass-0") / "drafter" / "model.safetensors").unlink()  # killed while it was exported
    assert [run.name for run in run_folders(tmp_path)] == ["lk-0"]


def test_the_spread_of_seeds_is_that_of_all_recipes(tmp_path):
    """Catches a recipe that leads since its two seeds happen to agree, although it loses at both, and a recipe with one
    seed whose bounds are those of prompts, far narrower."""
    tokens = {"late-0": 4.53, "late-1": 4.59, "eagle1-0": 4.45, "eagle1-1": 4.47, "lk-0": 4.49}
    rows = recipe_rows(runs(tmp_path, tokens), WAY, "eagle1")
    assert [row["recipe"] for row in rows] == ["late", "eagle1", "lk"]
    pooled = ((2 * 0.03**2 + 2 * 0.01**2) / 2) ** 0.5
    for row, seeds in zip(rows, (2, 2, 1), strict=True):
        assert row[f"{WAY}_high"] - row[WAY] == pytest.approx(T_THREE_SEEDS * pooled / seeds**0.5, rel=1e-4)


def test_bounds_over_seeds_are_students(tmp_path):
    """Catches a normal quantile, six times too narrow for two seeds, and a standard deviation for the mean's error."""
    (two,) = recipe_rows(runs(tmp_path / "two", {"lk-0": 4.0, "lk-1": 4.4}), WAY, "eagle1")
    assert (two["seeds"], two[WAY]) == (2, pytest.approx(4.2))
    assert two[f"{WAY}_high"] - two[WAY] == pytest.approx(T_TWO_SEEDS * 0.2, rel=1e-4)
    (three,) = recipe_rows(runs(tmp_path / "three", {"lk-0": 4.0, "lk-1": 4.3, "lk-2": 4.6}), WAY, "eagle1")
    assert three[WAY] - three[f"{WAY}_low"] == pytest.approx(T_THREE_SEEDS * 0.3 / 3**0.5, rel=1e-4)


def test_with_one_seed_the_bounds_are_those_of_prompts(tmp_path):
    (row,) = recipe_rows(runs(tmp_path, {"lk-0": 255 / 50}), WAY, "eagle1")
    fewest, most = 255 / max(STEPS.values()), 255 / min(STEPS.values())
    assert fewest < row[f"{WAY}_low"] < row[WAY] < row[f"{WAY}_high"] < most
    assert "alpha_1_low" not in row


def test_recipes_are_ranked_by_the_lower_bound(tmp_path):
    """Catches a ranking by the mean, by which a recipe with a lucky seed wins over one with three."""
    tokens = {"lk-0": 5.0, "hass-0": 4.4, "hass-1": 4.8, "hass-2": 5.2}
    rows = recipe_rows(runs(tmp_path, tokens), WAY, "eagle1")
    assert [row["recipe"] for row in rows] == ["hass", "lk"]
    assert rows[0][WAY] < rows[1][WAY]


def test_the_gain_is_paired_by_seed(tmp_path):
    """Catches the difference of means, whose bounds hold the seeds' common part."""
    tokens = {"eagle1-0": 3.0, "eagle1-1": 5.0, "lk-0": 4.0, "lk-1": 6.1, "lk-2": 9.0}
    lk, eagle1 = sorted(recipe_rows(runs(tmp_path, tokens), WAY, "eagle1"), key=lambda row: row["recipe"], reverse=True)
    assert lk["gain"] == pytest.approx(1.05)
    assert lk["gain_high"] - lk["gain"] == pytest.approx(T_TWO_SEEDS * 0.05, rel=1e-4)
    assert "gain" not in eagle1


def test_a_figure_that_was_not_measured_ranks_nothing(tmp_path):
    with pytest.raises(LanternError, match=r"tokens_per_step/none .* of lk; give one of .*refined_jacobi"):
        recipe_rows(runs(tmp_path, {"lk-0": 4.0}), "tokens_per_step/none", "eagle1")


def test_table_and_page_hold_every_figure(tmp_path):
    rows = recipe_rows(runs(tmp_path, {"eagle1-0": 3.0, "eagle1-1": 3.2, "a<b-0": 4.0}), WAY, "eagle1")
    titles = columns(rows, "eagle1", [1])
    table = format_recipes(rows, titles)
    assert table.splitlines()[0].split() == ["recipe", *(row["recipe"] for row in rows)]
    assert [line.split("  ")[0] for line in table.splitlines()] == list(titles.values())
    assert "3.1 [1.83, 4.37]" in table
    picture = tmp_path / "curves.png"
    picture.write_bytes(b"png")
    write_recipe_page(tmp_path / "recipes.html", "Recipes", ["ranked <so>"], rows, titles, picture)
    page = (tmp_path / "recipes.html").read_text()
    assert page.count('<th scope="row">') == 2
    assert "a&lt;b" in page
    assert "ranked &lt;so&gt;" in page
    assert all(f"<td>{cell}</td>" in page for cell in ("3.1 [1.83, 4.37]", "2", "0.5", "15"))
    assert "http" not in page


def test_bounds_are_of_the_last_codes_lines_about_the_rows_figure(tmp_path):
    """Catches steps that earlier code took, left in the record of a run that was decoded again."""
    folder = made_run(tmp_path / "lk-0", 255 / 50)
    record = folder / "decoded" / "0" / "prompts.jsonl"
    new = read_rows(record)
    expected = run_row(folder)
    record.unlink()
    old = [line | {"key": "old", "prompt": f"{line['prompt']}, too", "steps": 255} for line in new]
    append_rows(record, [*old, *(line | {"key": "new"} for line in new)])
    assert run_row(folder) == expected
    ratio = total_ratio([255 * 1.0] * len(STEPS), list(STEPS.values()))
    assert expected[f"{WAY}_low"] / expected[WAY] == pytest.approx(ratio.low / ratio.value)
