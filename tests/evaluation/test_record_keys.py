"""Records are found again only by what determines them, and lines of other runs in one file are told apart."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from support.evaluations import evaluation
from support.fake_pipeline import FakePipeline

from lantern.evaluation.records import RECORDS, copy_missing, current_lines
from lantern.evaluation.rows import SUMMARY, append_rows, read_rows, setting_id
from lantern.identity import config_fingerprint, decoding_hashes, request_hash
from lantern.reporting.page.pictures import shared_records

CHANGES = {
    "codebook": lambda target, patch: patch.setattr(target, "codebook", torch.ones(8, 2)),
    "encoder": lambda target, patch: setattr(target, "reads", SimpleNamespace(weights_hash="other")),
    "torch": lambda target, patch: patch.setattr(torch, "__version__", "0.1"),
}


def evaluated(folder) -> FakePipeline:
    pipeline = FakePipeline()
    evaluation(folder, "ab", 2, 2, 2).run(pipeline)
    return pipeline


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_decoding_reads_is_in_the_keys_of_records_and_requests(tmp_path, monkeypatch, change: Callable):
    """Catches images and finished runs of another text encoder, tokenizer or torch that are read for this one's."""
    evaluated(tmp_path)
    again = FakePipeline()
    before = request_hash({}, decoding_hashes(again.target))
    change(again.target, monkeypatch)
    evaluation(tmp_path, "ab", 2, 2, 2).run(again)
    assert len(again.calls) == 1 + 2 + 1  # a warm-up, two timed, two made together
    assert len(again.ar_calls) == 1 + 2 + 1
    assert request_hash({}, decoding_hashes(again.target)) != before


def test_records_of_a_killed_run_are_of_the_users_code_and_of_the_files_it_is_given(tmp_path, monkeypatch):
    """Catches images of before an edit that a run started again takes for today's; plain decoding's are kept."""
    monkeypatch.syspath_prepend(tmp_path)
    table, calls = tmp_path / "table.txt", []
    config = {"acceptance": {"_target_": "my_edited_rule.Rule", "table": str(table)}}
    for share, number in ((1, 1), (1, 1), (2, 1), (2, 2)):
        (tmp_path / "my_edited_rule.py").write_text(f"SHARE = {share}\n")
        table.write_text(str(number))
        again = FakePipeline()
        asked = evaluation(tmp_path, "ab", 0, 2, 2, fingerprint=config_fingerprint(config))
        asked.run(again)  # a killed run leaves what this one finds: lines, and no mark of its end
        calls.append((len(again.calls), len(again.ar_calls)))
    assert calls == [(1, 1), (0, 0), (1, 0), (1, 0)]


def test_compiled_plain_decoding_is_no_setting_of_plain_decoding(tmp_path):
    """Catches the lines of two baselines under one setting, whose tokens may differ."""
    plain, method = evaluation(tmp_path, "ab", 2, 0, 2, compiled_baseline=True).run(FakePipeline())
    settings = {line["setting"] for line in read_rows(tmp_path / RECORDS)}
    assert len(settings) == 3
    assert {record["setting"] for record in plain.records + method.records} < settings


def test_lines_of_earlier_code_are_left_out(tmp_path):
    """Catches pictures of two versions side by side, of one setting's images."""
    (tmp_path / "b.png").touch()
    (tmp_path / SUMMARY).write_text('{"method": {}}')
    common = {"setting": (own := setting_id({})), "part": "images", "copy": 0, "seed": 0, "image": "b.png"}
    old = [common | {"key": "old", "prompt": prompt, "tokens": "o"} for prompt in "abc"]
    new = [common | {"key": "new", "prompt": prompt, "tokens": "n"} for prompt in "ab"]
    timed = [common | {"key": "timed", "part": "speed", "prompt": "a", "image": None}]
    assert current_lines([*old, *timed, *new]) == [*timed, *new]
    append_rows(tmp_path / RECORDS, [*old, *timed, *new])
    found, shared = shared_records([tmp_path], [own])
    assert shared == [("a", 0), ("b", 0)]
    assert {record["tokens"] for record in found[own].values()} == {"n"}
    copy_missing(tmp_path, old, tmp_path)  # a run of the earlier code again, which makes nothing
    found, _ = shared_records([tmp_path], [own])
    assert [record["tokens"] for record in found[own].values()] == ["o"] * 3
    size = (tmp_path / RECORDS).stat().st_size
    copy_missing(tmp_path, old, tmp_path)
    assert (tmp_path / RECORDS).stat().st_size == size
