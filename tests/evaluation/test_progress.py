"""The progress of evaluations and sweeps, on a fake terminal and in a fake log, by a clock that decoding advances."""

import io
import itertools
import re
from contextlib import closing
from pathlib import Path
from time import sleep

import pytest
from support.configs import composed_with_hydra, sweep_points
from support.evaluations import evaluation
from support.fake_pipeline import Brightness, FakePipeline
from support.terminal import Terminal

from lantern.cli.sweep_callback import Points, counted
from lantern.evaluation.progress import OWN, PLAIN, SHARED, EvaluationBar
from lantern.runtime import progress_line
from lantern.runtime.progress_line import BEAT_S, LINE_S, ProgressLine

PROMPTS = ["a", "b", "c", "d"]


class Timed(FakePipeline):
    """Decoding takes ten seconds of the clock an image."""

    now = 0.0

    def generate(self, prompts, seeds, batch_size):
        Timed.now += 10 * len(prompts)
        return super().generate(prompts, seeds, batch_size)

    def baseline(self):
        return Timed("none", None, 1.0, target=self.target)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(Timed, "now", 0.0)


def evaluate(folder: Path, bar: EvaluationBar, point: int = 0, num_timed: int = 2, num_images: int = 4) -> None:
    asked = evaluation(folder / str(point), PROMPTS, num_timed, num_images, 2, sweep=folder, parts={"bar": bar})
    asked.run(Timed(delta=0.1 * (point + 1)))


def bar(stream: io.StringIO, points: int = 1) -> EvaluationBar:
    return EvaluationBar(points, stream, lambda: Timed.now)


def test_a_log_has_a_line_every_ten_seconds_with_images_and_time_left(tmp_path):
    """Catches a count without the images of plain decoding, and those of batches foreseen like images alone."""
    stream = io.StringIO()
    evaluate(tmp_path, bar(stream), num_images=12)
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"evaluation: 3\d%, timing image 4 of 4, 1:3\d left", lines[5]
    )  # batches are foreseen faster than they are
    assert re.fullmatch(r"evaluation: 9\d%, image 24 of 24, 0:\d\d left", lines[-1])  # to judge and write all
    assert len(lines) == 2 + 4 + 2 * 6  # warm-ups, images alone, and batches of two


def test_judging_is_said_while_images_are_judged_and_not_while_others_are_made(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(ProgressLine, "show", lambda self, share, words, left_s: said.append(words))
    parts = {"bar": EvaluationBar(), "metrics": {"brightness": Brightness()}}
    evaluation(tmp_path, PROMPTS, 2, 4, 2, parts=parts).run(FakePipeline())
    assert [words for words in said if "judging" in words] == ["image 4 of 8, judging", "image 8 of 8, judging"]
    assert said[said.index("image 4 of 8, judging") + 1] == "image 4 of 8"


def test_a_log_is_silent_for_ten_seconds_at_most_also_in_a_long_step_and_between_two_pieces(monkeypatch):
    """Catches a line every 70 seconds, and one that each of many short pieces puts off anew."""
    now, stream = [0.0], io.StringIO()
    for title in ("one", "two"):
        line = ProgressLine(title, stream, lambda: now[0])
        now[0] += 5
        line.show(0.5, "step 1", 20.0)
        line.close()
    assert stream.getvalue() == "two: 50%, step 1, 0:20 left\n"
    monkeypatch.setattr(progress_line, "LINE_S", 0.1)
    monkeypatch.setattr(progress_line, "BEAT_S", 0.05)
    with closing(ProgressLine("long", stream := io.StringIO())) as line:
        line.show(0.5, "step 1", None)
        sleep(1.5)
    assert stream.getvalue().count("long: 50%, step 1") >= 4  # of seven, on a busy machine
    assert LINE_S + 2 * BEAT_S < 10


def test_a_step_that_takes_longer_than_foreseen_shows_how_long():
    """Catches "0:00 left" for as long as it goes on."""
    now, stream = [0.0], io.StringIO()
    line = ProgressLine("training", stream, lambda: now[0])
    for passed in (8, 4):
        now[0] += passed
        line.show(1.0, "batch 4 of 4", 3.0)
        now[0] += 9
        line._draw()
    assert stream.getvalue().splitlines()[:2] == [f"training: 100%, batch 4 of 4, 0:0{end}" for end in ("3 left", "9")]


def test_a_sweep_counts_all_points_and_the_shared_images_once(tmp_path):
    """Catches a time left for the images of plain decoding that every later point finds, or of one point alone."""
    stream = Terminal()
    sweep = bar(stream, points=3)
    evaluate(tmp_path, sweep, 0)
    assert "point 1 of 3, image 8 of 8" in stream.getvalue()
    sweep.end_point()
    assert stream.getvalue().endswith("\r")
    Timed.now += 1
    sweep.tell()
    assert re.search(r" 41 % \|#+\S? *\| evaluation: point 2 of 3, starting, 3:30 left", stream.getvalue())
    evaluate(tmp_path, sweep, 1)
    assert "point 2 of 3, timing image 4 of 4" in stream.getvalue()
    assert sweep.left_s() == pytest.approx(20 + 4 * 10 + 4 * 10, rel=0.1)  # warm-ups, timed ones, the method's
    again = bar(io.StringIO())
    evaluate(tmp_path, again, 1)
    assert again.left_s() is None  # images on record take no time


def test_the_time_left_of_a_sweep_only_falls_and_counts_points_not_begun_as_those_that_ended():
    """Catches a time left that doubles at a point's warm-up, or whenever slow images, timed alone, follow fast ones
    of plain decoding that no later point makes; judging that is forgotten; and warm-ups in the time of an image."""
    now, said = [0.0], []
    sweep = EvaluationBar(4, io.StringIO(), lambda: now[0])
    kinds = {PLAIN: (4, 30.0), OWN: (4, 10.0), SHARED: (80, 1.0), ("images", "method"): (80, 2.0)}
    for point in range(4):
        sweep.begin()
        for kind, (count, _) in kinds.items():
            sweep.expect(kind, count)
        now[0] += 50
        sweep.add(("warm-up", "method"))
        for kind, (count, each) in kinds.items():
            for _ in range(count):
                is_new = point == 0 or kind != SHARED
                now[0] += is_new * each
                sweep.add(kind, 1, is_new)
                said.append((now[0], sweep.left_s()))
        now[0] += 20  # judging
        sweep.end_point()
    left = [seconds for at, seconds in said if at > 470]  # the first point's end
    assert all(later <= 1.01 * earlier for earlier, later in itertools.pairwise(left))
    at, seconds = next(pair for pair in said if pair[0] >= now[0] / 4)
    assert seconds == pytest.approx(now[0] - at, rel=0.3)


def test_the_time_left_of_a_sweep_follows_a_machine_that_becomes_free():
    """Catches twice the time that is left, for as long as the mean of the points that have ended says so."""
    now, said = [0.0], []
    sweep = EvaluationBar(4, io.StringIO(), lambda: now[0])
    for point in range(4):
        sweep.begin()
        for kind in (PLAIN, OWN):
            sweep.expect(kind, 4)
        for _ in range(4):
            for kind, each in ((PLAIN, 30.0), (OWN, 10.0)):
                now[0] += each if point else 3 * each
                sweep.add(kind, 1, True)
            said.append((now[0], sweep.left_s()))
        sweep.end_point()
    for at, seconds in said[7::4]:  # at the ends of the points behind the first
        assert seconds == pytest.approx(now[0] - at, rel=0.1, abs=20)


class Law:
    """Reads eight images and judges forty positions; each of both takes ten seconds."""

    num_images = 8

    def foreseen(self, pipeline):
        return {"method": (8, 1.0), "position": (40, 1.0)}

    def measure(self, pipeline, prompts, seeds, batch_size):
        for kind in [*["method"] * 8, *["position"] * 40]:
            Timed.now += 10
            ProgressLine.done(kind, 1)
        return {}


@pytest.mark.parametrize(("cores", "laws"), [(0.0, None), (1.0, None), (0.0, Law()), (1.0, Law())])
@pytest.mark.parametrize("points", [1, 3])
def test_at_a_quarter_of_the_time_what_is_left_is_known(points, cores, laws, tmp_path, monkeypatch):
    """Catches timings again and a measure of the law that are not foreseen, and a bar that stands or runs backwards
    meanwhile."""
    monkeypatch.setattr("lantern.evaluation.sides.CpuContention.cores", lambda _: cores)
    sweep, seen = bar(Terminal(), points), []
    monkeypatch.setattr(sweep._line, "show", lambda *shown: seen.append((Timed.now, *shown)))
    for point in range(points):
        parts = {"bar": sweep, "laws": laws}
        asked = evaluation(tmp_path / str(point), PROMPTS, 8, 0, 2, sweep=tmp_path, parts=parts, max_retimed=2)
        asked.run(Timed(delta=0.1 * (point + 1)))
        sweep.end_point()
    at, *_, left_s = next(each for each in seen if each[0] >= Timed.now / 4)
    assert left_s == pytest.approx(Timed.now - at, rel=0.3)
    shares = [share for _, share, *_ in seen]
    assert shares == sorted(shares)
    assert any("timing again, image 3 of 32" in words for *_, words, _ in seen) == bool(cores)
    steps = [later - earlier for earlier, later in itertools.pairwise(shares) if later]
    assert laws is None or max(steps) < 0.1


def test_a_library_call_prints_nothing(tmp_path, capsys):
    evaluation(tmp_path, PROMPTS, 2, 4, 2).run(FakePipeline())
    assert capsys.readouterr() == ("", "")


def test_the_points_of_a_sweep_are_counted_before_it_runs():
    cfg = composed_with_hydra("evaluate", "+sweep=field")
    assert counted(cfg) == (len(sweep_points(cfg, *cfg.hydra.overrides.task)), "point")


class Search:
    """A sweeper that chooses its points as it goes, as Optuna's does."""


def test_the_trials_of_a_search_are_counted_where_its_points_are_not_known(tmp_path, monkeypatch):
    """Catches a bar of one point for each trial, and time left for one of them."""
    cfg, stream = composed_with_hydra("evaluate"), Terminal()
    cfg.hydra.sweeper = {"_target_": f"{__name__}.Search", "n_trials": 3}
    search = EvaluationBar(counted(cfg)[0], stream, lambda: Timed.now, counted(cfg)[1])
    for trial in range(2):
        evaluate(tmp_path, search, trial)
        search.end_point()
    assert re.search("evaluation: trial 2 of 3, image 8 of 8, 1:[34].", stream.getvalue())
    monkeypatch.setattr(Points, "here", None)
    monkeypatch.setattr(ProgressLine, "whole", None)
    (points := Points()).on_multirun_start(cfg)
    points.on_job_start()
    assert points.of_all("training", 0.5, "step 1", None)[0] == "trial 1 of 3"
