"""Disturbed timings are made again by a fixed rule, as often as allowed, and counted in the row."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from support.evaluations import evaluation
from support.fake_pipeline import CutShortError, FakePipeline

from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import read_rows
from lantern.evaluation.sides import is_disturbed

used = {"cores": 0.0}  # by other processes, as Slow says


class Slow(FakePipeline):
    """Plain decoding takes four times as long, since another process uses a core, for as many of a prompt's first calls
    as `slow` says; fails after `left` calls of either side. The warm-ups decode the first prompt, "a"."""

    def __init__(self, slow: dict[str, int], left: int = 99, made: Counter | None = None, **settings) -> None:
        super().__init__(**settings)
        self.slow, self.left, self.made = slow, left, Counter() if made is None else made

    def generate(self, prompts, seeds, batch_size):
        if self.made.total() == self.left:
            raise CutShortError
        self.made[self.drafter, prompts[0]] += 1
        is_slow = self.is_baseline and self.made[self.drafter, prompts[0]] <= self.slow.get(prompts[0], 0)
        used["cores"] = float(is_slow)
        made = super().generate(prompts, seeds, batch_size)
        return replace(made, latency_s=(4 if is_slow else 1) * made.latency_s)

    def baseline(self):
        plain = {"drafter": "none", "delta": None, "latency_s": 1.0}
        return Slow(self.slow, self.left, self.made, target=self.target, **plain)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr("lantern.evaluation.sides.CpuContention.cores", lambda _: used["cores"])


def run(folder: Path, pipeline: FakePipeline, most: int = 2, prompts: str = "abcd") -> dict:
    return evaluation(folder, prompts, len(prompts), 0, 1, max_retimed=most).run(pipeline)[-1].row


@pytest.mark.parametrize(("slow", "most", "more", "speedup"), [
    ({}, 2, 0, 2), ({"b": 1}, 2, 1, 2), ({"b": 2}, 2, 2, 2), ({"b": 9}, 2, 2, 3.5), ({"b": 1}, 0, 0, 3.5),
])  # fmt: skip
def test_a_pair_is_timed_again_while_other_processes_use_the_cores(tmp_path, slow, most, more, speedup):
    """Catches one slow image of plain decoding in the speed-up, a pair of which only one side is timed again, timing
    without an end, and a row that hides it or counts timings for images."""
    pipeline = Slow(slow)
    row = run(tmp_path, pipeline, most)
    assert (row["retimed"], row["speedup"]) == (int(more > 0), pytest.approx(speedup))
    assert pipeline.made["none", "b"] == pipeline.made["eagle", "b"] == 1 + more
    assert pipeline.made["none", "c"] == pipeline.made["eagle", "c"] == 1


def test_a_pair_is_timed_again_where_the_method_was_disturbed_or_little(tmp_path, monkeypatch):
    """Catches a disturbance of the method's side, or at usual speed, that stays in the row."""
    cores = iter([0.0, 0.0, 0.0, 0.3, *[0.2] * 99])  # ar a, method a, method b, ar b, …
    monkeypatch.setattr("lantern.evaluation.sides.CpuContention.cores", lambda _: next(cores))
    pipeline = Slow({})
    row = run(tmp_path, pipeline)
    assert row["retimed"] == 1
    assert pipeline.made["eagle", "b"] == 2
    assert row["other_cores"] < 0.25


def test_a_process_on_the_same_gpu_is_in_the_row_with_a_warning(tmp_path, monkeypatch):
    """Catches a speed-up on a shared GPU without a word, also where the other process was there for one image alone."""
    sharers = iter([0, 0, 2, *[0] * 99])
    monkeypatch.setattr("lantern.evaluation.sides.gpu_sharers", lambda device: next(sharers))
    row = run(tmp_path, Slow({}))
    assert (row["gpu_sharers"], row["retimed"]) == (2, 0)
    assert "on the same GPU" in row["warnings"]
    assert run(tmp_path / "alone", Slow({}))["gpu_sharers"] == 0


@pytest.mark.parametrize(("used_by_others", "disturbed"), [
    ([0.25, 0.25], False), ([0.26, 0.0], True), ([0.0, 0.26], True), ([None, 0.1], False),
])  # fmt: skip
def test_a_pair_is_disturbed_above_a_quarter_of_a_core_on_either_side(used_by_others, disturbed):
    """Catches a limit that was moved: speed-ups of busy machines in rows, or timings repeated on quiet ones."""
    assert is_disturbed([{"other_cores": cores} for cores in used_by_others]) == disturbed


@pytest.mark.parametrize("calls", [13, 14, 15, 18])  # 14 calls warm up and time everything once, 4 time b and c again
def test_a_run_cut_short_while_timing_again_ends_with_the_row_of_a_whole_one(tmp_path, calls):
    """Catches a pair with an old and a new timing, also where the old one is of this turn but of another process, an
    image timed again without need, and an old line that wins."""
    slow, prompts = {"b": 1, "c": 1}, "abcdef"
    whole = run(tmp_path, Slow(slow), 2, prompts)
    cut, tmp_path = Slow(slow, calls), tmp_path / "cut"
    with nullcontext() if calls == 18 else pytest.raises(CutShortError):
        run(tmp_path, cut, 2, prompts)
    row = run(tmp_path, Slow(slow, made=cut.made), 2, prompts)
    assert {key: row[key] for key in ("speedup", "latency_s")} == {key: whole[key] for key in ("speedup", "latency_s")}
    assert row["retimed"] == whole["retimed"] + (calls == 13)  # an image that was not disturbed
    timed = [(line["method"], line["prompt"], line["retimed"]) for line in read_rows(tmp_path / RECORDS)]
    assert len(timed) == len(set(timed)) == 12 + 4 + (calls in (13, 15))  # stopped between two of a pair
    last = {line[:2]: line[2] for line in timed}
    assert all(last["fake/ar", prompt] == count for (_, prompt), count in last.items())
    assert run(tmp_path, Slow({}, 0), 2, prompts) == row  # nothing is timed once more
