"""Recorded images are never made again, and an interrupted run ends with the rows of an uninterrupted one."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.evaluations import measured as evaluate
from support.fake_pipeline import CutShortError, FakePipeline

from lantern.errors import LanternError
from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import append_rows, read_rows, setting_id
from lantern.evaluation.sides import decode_images
from lantern.reporting.page.pictures import shared_records
from lantern.runtime import memory

# retimed: an image whose turn a kill cuts short is timed again
TIMES = ("retimed", "latency_s", "end_to_end_s", "other_cores", "revision", "warnings")
TIMES += ("end_to_end_speedup", "end_to_end_speedup_low", "end_to_end_speedup_high")


def lasting(rows: list[dict]) -> list[dict]:
    """Rows without timings."""
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def records(folder: Path) -> dict[tuple, dict]:
    lines = [line for path in folder.rglob(RECORDS) for line in read_rows(path)]
    return {(line["key"], line["part"], line["prompt"], line["copy"]): line for line in lines}


class Fragile(FakePipeline):
    """Fails at its n-th call, of AR or method."""

    def __init__(self, calls: list[int], **settings) -> None:
        super().__init__(**settings)
        self.left = calls

    def generate(self, prompts, seeds, batch_size):
        self.left[0] -= 1
        if self.left[0] < 0:
            raise CutShortError
        return super().generate(prompts, seeds, batch_size)

    def baseline(self):
        return Fragile(self.left, drafter="none", delta=None, latency_s=1.0, target=self.target)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[list[dict], dict]:
    folder = tmp_path_factory.mktemp("whole")
    rows = [m.row for m in evaluate(folder, folder)]
    return rows, records(folder)


def finished(found: dict[tuple, dict]) -> dict[tuple, dict]:
    """Without timings of which the other side's is missing."""
    sides = Counter(name[1:] for name in found)
    return {name: line for name, line in found.items() if name[1] != "speed" or sides[name[1:]] == 2}


@pytest.mark.parametrize("calls", range(0, 20, 3))
def test_a_run_cut_short_anywhere_goes_on_where_it_stopped(whole, tmp_path, calls):
    """Catches a record written late, a finished timing or image that is made again, and an image timed by one side
    before the stop and by the other after it, in another minute."""
    with pytest.raises(CutShortError):
        evaluate(tmp_path, tmp_path, pipeline=Fragile([calls]))
    with (tmp_path / RECORDS).open("a") as file:
        file.write('{"key": "torn')  # what a kill in the middle of a write leaves
    before = records(tmp_path)
    rows = [m.row for m in evaluate(tmp_path, tmp_path)]
    after = records(tmp_path)
    assert all(after[name] == line for name, line in finished(before).items())  # also the timings
    timed = [(prompt, copy, line["retimed"]) for (_, part, prompt, copy), line in after.items() if part == "speed"]
    assert set(Counter(timed).values()) == {2}
    assert sum(line["retimed"] for line in after.values() if "retimed" in line) == 2 * (calls in (3, 9))
    assert lasting(rows) == lasting(whole[0])
    assert {name: line["tokens"] for name, line in after.items()} == {
        name: line["tokens"] for name, line in whole[1].items()
    }


def test_more_images_are_shown_with_those_already_made(tmp_path):
    """Catches kept records that belong to the setting of their first run alone."""
    evaluate(tmp_path, tmp_path, pipeline=FakePipeline(), images=4)
    plain, method = evaluate(tmp_path, tmp_path, pipeline=FakePipeline(), images=8)
    found, shared = shared_records([tmp_path], [setting_id(plain.row), setting_id(method.row)])
    assert (len(found), len(shared)) == (2, 8)


def test_another_setting_finds_nothing_of_this_one(tmp_path):
    """Catches a record found by its prompt alone."""
    evaluate(tmp_path, tmp_path, pipeline=FakePipeline(delta=0.1))
    other = FakePipeline(delta=0.2)
    evaluate(tmp_path, tmp_path, pipeline=other)
    assert len(other.calls) == 1 + 6 + 3  # warm-up, timed, batches of 4, 4 and 2


def test_a_group_of_images_that_is_not_whole_is_made_again_as_a_whole(tmp_path):
    """In low precision an image's rounding depends on the batch it is decoded in."""
    evaluate(tmp_path, tmp_path)
    lines = [line for line in read_rows(tmp_path / RECORDS) if line["part"] == "images"]
    (tmp_path / RECORDS).unlink()
    gone = [line for line in lines if line["method"] == "fake/ar" or (line["prompt"], line["copy"]) != ("b", 1)]
    append_rows(tmp_path / RECORDS, gone)
    pipeline = FakePipeline()
    evaluate(tmp_path, tmp_path, pipeline=pipeline)
    assert (["b", "c", "a", "b"], 4) in pipeline.calls  # images 4 … 7
    assert [len(prompts) for prompts, _ in pipeline.calls].count(4) == 1


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_shards_merge_into_the_rows_images_and_records_of_one_process(whole, tmp_path, shards):
    for shard in range(shards):
        assert evaluate(tmp_path / str(shard), tmp_path, shards, shard, FakePipeline()) == [] or shards == 1
    merged = evaluate(tmp_path, tmp_path, pipeline=Fragile([0]) if shards > 1 else FakePipeline())
    assert lasting([m.row for m in merged]) == lasting(whole[0])
    tokens = {
        (line["part"], line["method"], line["prompt"], line["copy"]): line["tokens"] for line in whole[1].values()
    }
    found = read_rows(tmp_path / RECORDS)
    assert {(r["part"], r["method"], r["prompt"], r["copy"]): r["tokens"] for r in found} == tokens
    assert all((tmp_path / line["image"]).is_file() for line in found)


def test_images_that_do_not_fit_in_memory_are_told_before_they_are_made(monkeypatch):
    """Catches a process that the system kills after hours of decoding, and again each time it is started."""
    monkeypatch.setattr(memory, "available_memory", lambda device: 1000)
    target = SimpleNamespace(codebook=torch.empty(1), decode=lambda tokens: torch.zeros(len(tokens), 3, 4, 4))
    for count in (0, 5):
        assert decode_images(target, torch.zeros(count, 4, dtype=torch.long)).shape == (count, 3, 4, 4)
    with pytest.raises(LanternError, match=r"6 images as pixels need .* nothing is decoded twice"):
        decode_images(target, torch.zeros(6, 4, dtype=torch.long))
