"""Rows on disk: appended whole, read without torn lines, and merged."""

import os

import pytest

from lantern.errors import LanternError
from lantern.evaluation.rows import append_rows, merge_rows, read_rows
from lantern.figures import figures
from lantern.reporting.table import label_rows


def test_an_append_closes_a_line_that_a_crash_left_torn(tmp_path):
    path = tmp_path / "results.jsonl"
    append_rows(path, [{"delta": 0.1}])
    with path.open("a") as file:
        file.write('{"delta": 0.')
    append_rows(path, [{"delta": 0.3}, {"delta": float("nan")}])
    assert read_rows(path) == [{"delta": 0.1}, {"delta": 0.3}, {"delta": None}]


def test_a_line_that_only_began_to_fit_is_a_full_disk(tmp_path, monkeypatch):
    """Catches a row that is lost without a word."""
    monkeypatch.setattr(os, "write", lambda descriptor, line: len(line) // 2)
    with pytest.raises(LanternError, match=r"No space left on device.*make room"):
        append_rows(tmp_path / "results.jsonl", [{"delta": 0.1}])


def test_merging_keeps_one_baseline_row_with_the_mean_the_sum_or_the_first_of_each_figure():
    """Catches a figure that a merge averages although it is a count, or takes from a point that has none, and timings
    that count again in a point which repeats another's method and finds them on record."""
    values = {figure.key: (None, 2.0, 7.0) for figure in figures() if figure.key != "num_images"}  # of the setting
    plain, method = {"model": "m", "drafter": "none"}, {"model": "m", "drafter": "eagle"}
    points = [(plain | {key: three[i] for key, three in values.items()}, method | {"delta": i}) for i in range(3)]
    merged, *others = merge_rows(row for point in (*points, points[2]) for row in point)
    expected = {figure.key: {"mean": 4.5, "sum": 9.0, "": 2.0}[figure.merged] for figure in figures()}
    assert {key: merged[key] for key in values} == {key: expected[key] for key in values}
    assert [merged[key] for key in ("num_timed", "retimed", "latency_s", "frechet")] == [9.0, 9.0, 4.5, 2.0]
    assert [row["delta"] for row in others] == [0, 1, 2]
    few, many = plain | {"warnings": "one prompt has no bounds"}, plain | {"speedup_low": 1.0, "warnings": None}
    assert merge_rows([few, method, many, method | {"delta": 1}])[0].get("warnings") is None


@pytest.mark.parametrize(
    "key", ["threads", "torch", "device", "dtype", "compile", "prompts_hash", "split", "cuda_graphs", "batch_size"]
)
def test_timings_of_other_machines_precision_or_prompts_are_rows_of_their_own(key):
    """Catches plain decoding on one and on two threads, or as CUDA graphs and kernel by kernel, averaged into a time
    that no machine shows."""
    rows = [{"model": "m", "drafter": "none", "latency_s": float(value), key: str(value)} for value in (0, 1)]
    assert [row["latency_s"] for row in merge_rows(rows)] == [0, 1]
    assert len(set(label_rows(rows))) == 2
    assert not any("#" in label for label in label_rows(rows))
