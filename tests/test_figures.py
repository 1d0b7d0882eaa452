"""One entry makes a figure: everything that shows numbers of rows finds it there."""

import csv

from support.pages import read_content

from lantern.evaluation.rows import encode
from lantern.figures import FIGURES, Figure, figure_of
from lantern.reporting.merge import merge_points
from lantern.reporting.ranking import Budget
from lantern.runtime.files import replace_text
from tools.result_pages import Table, glossary, render, rows_of
from tools.results import measure


def test_a_new_figure_is_found_wherever_rows_are_shown(tmp_path, monkeypatch, capsys):
    """Catches a list of keys beside FIGURES that a new figure has to be added to as well."""
    shown = {"bounds": True, "shown": True, "printed": 1, "kept": True}
    warm = Figure("warmth", "warm colours", "Share of red.", "images", "low", **shown)
    monkeypatch.setitem(FIGURES, "warmth", warm)
    row = {"model": "m", "drafter": "eagle", "tree": "t", "acceptance": "exact", "verification": "ratio"}
    row |= {"warmth": 0.25, "warmth_low": 0.2, "warmth_high": 0.3, "speedup": 2.0}
    replace_text(tmp_path / "0" / "summary.json", encode({"row": row}))
    replace_text(tmp_path / "0" / "prompts.jsonl", "")
    merge_points(tmp_path, [tmp_path / "0"], "a new figure", Budget({"warmth": 0.1}))
    assert "warm colours" in (printed := capsys.readouterr().out)
    assert "0.25 [0.20, 0.30]" in printed
    assert next(csv.DictReader((tmp_path / "results.csv").open()))["warmth"] == "0.25"
    shown = {column["key"]: column for column in read_content(tmp_path / "report.html")["columns"]}
    assert (shown["warmth"]["explanation"], shown["warmth"]["better"]) == ("Share of red.", "low")
    assert "| `warmth` | warm colours | Share of red. |" in glossary()

    docs, table = tmp_path / "docs", Table("one", [], ["speed.num_prompts=2"], ["warmth"], {"a": ["+a=1"]})
    docs.mkdir()
    origin = {"machine": "m", "date": "d", "dtype": "float32", "revision": "r", "compile": False}
    measure(table, docs, docs, lambda *_: row | origin, lambda _: {})
    assert "| a | 0.25 [0.20, 0.30] |" in render(table, rows_of(table, docs), "page.md")


def test_a_metric_s_own_figures_are_named_by_the_end_of_their_keys():
    """Catches a stranger's metric whose figures no table explains, and a derived figure in a vocabulary of its own."""
    assert (figure_of("sharpness_score").title, figure_of("sharpness_score").better) == ("sharpness score", "high")
    loss = figure_of("sharpness_score_loss")
    assert (loss.title, loss.better, loss.kind) == ("sharpness score, loss", "low", "images")
    assert figure_of("recall_loss").title == "recall, loss"
    assert figure_of("anything").better == ""
