"""Rows that cannot be compared are not put into one table."""

import pytest

from lantern.errors import LanternError
from lantern.reporting import merge
from lantern.reporting.merge import check_alike

ROW = {
    "model": "a",
    "drafter": "none",
    "acceptance": "exact",
    "tree": "none",
    "code": "c1",
    "target_hash": "w1",
    "tokenizer_hash": "t1",
}


def test_rows_of_the_same_code_and_weights_are_merged_also_of_several_models():
    check_alike([ROW, ROW | {"model": "b", "target_hash": "w2"}, ROW | {"code": None}])


@pytest.mark.parametrize(("change", "sentence"), [
    ({"code": "c2"}, r"different code \(c1 in a/ar, c2 in a/ar\)"),
    ({"target_hash": "w2"}, r"different weights of a \(w1 in a/ar, w2 in a/ar\)"),
    ({"tokenizer_hash": "t2"}, r"different tokenizers of a \(t1 in a/ar, t2 in a/ar\)"),
])  # fmt: skip
def test_rows_of_other_code_or_weights_are_refused_and_named(change, sentence):
    """Catches a table whose rows differ in more than its columns say, such as of machines with other checkouts."""
    with pytest.raises(LanternError, match=sentence):
        check_alike([ROW, ROW | change])


def test_points_that_are_one_setting_are_told(caplog):
    """Catches a sweep over a metric's size, of whose points the table keeps one without a word."""
    method = ROW | {"drafter": "eagle"}
    merge._tell_doubled([ROW, method, ROW, method | {"tree": "chain"}])
    assert not caplog.records
    merge._tell_doubled([ROW, method, ROW, method])
    assert "2 points are the same setting, a/exact/none" in caplog.text


def test_rows_that_were_not_timed_alike_are_told(caplog):
    """Catches a ranking of speed-ups on one and on two threads, without a word."""
    method = ROW | {"drafter": "eagle", "device": "cpu", "threads": 1, "torch": "2.5", "speedup": 2.0}
    merge._tell_places([method, method | {"k": 1}])
    assert not caplog.records
    merge._tell_places([method, method | {"threads": 2}, method | {"threads": 2, "k": 1}])
    assert "1 with device cpu, threads 1, torch 2.5; 2 with device cpu, threads 2, torch 2.5" in caplog.text
    assert "best.json ranks those with device cpu, threads 2, torch 2.5 only" in caplog.text
