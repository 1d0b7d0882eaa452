"""One evaluation on a stand-in pipeline: what is timed and made, in which order, and the rows that come of it."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.evaluations import evaluation
from support.fake_pipeline import NUM_TOKENS, Brightness, FakePipeline
from support.features import MeanColour
from support.toy import tiny_target

from lantern.acceptance.exact import Exact
from lantern.drafters.none import NoDrafter
from lantern.engine.graphs import EagerPasses
from lantern.errors import LanternError
from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.rows import (
    PROTOCOL_KEYS,
    SETTING_KEYS,
    WARNING_BREAK,
    fixed_figures,
    is_baseline,
    read_rows,
    setting_id,
)
from lantern.metrics.differences import Diversity, ImageDifference
from lantern.metrics.fidelity import Fidelity
from lantern.pipeline import Guarantee, Pipeline
from lantern.reporting.publish import write_measurements
from lantern.sampling import Sampling
from lantern.verification import SharedNoise


def small(folder: Path, num_timed: int = 3, num_images: int = 5, metrics=None, prompts=("a", "b")) -> Evaluation:
    metrics = {"brightness": Brightness()} if metrics is None else metrics
    return evaluation(folder, prompts, num_timed, num_images, 4, parts={"metrics": metrics})


def test_a_row_has_the_fixed_keys_in_their_order_then_the_metrics(tmp_path):
    baseline, method = small(tmp_path).run(FakePipeline())
    fixed = [*SETTING_KEYS, *fixed_figures(), *PROTOCOL_KEYS]
    assert list(baseline.row) == [*fixed, "brightness", "meter"]
    assert list(method.row) == [*fixed, "brightness", "brightness_diff", "meter"]
    assert method.row["num_images"] == 5
    assert method.row["drafter"] == "eagle"
    assert baseline.row["drafter"] == "none"


def test_a_row_says_why_it_is_lossless_or_not_and_warns_where_nothing_shows_it(tmp_path):
    """Catches a reason that only the program knows, and a user who is not told what to call."""

    class Unknown(FakePipeline):
        guarantee = Guarantee(False, "no certificate", is_open=True)

    baseline, method = small(tmp_path, 1, 0).run(Unknown())
    assert (baseline.row["law"], method.row["law"]) == ("of a fake", "no certificate")
    assert "no certificate" in method.row["warnings"].split(WARNING_BREAK)
    assert "no certificate" not in (baseline.row["warnings"] or "")
    named = setting_id(method.row)
    assert setting_id(method.row | {"law": "my_rule.law.json: 1e-16 over 8 cases"}) == named


def test_speed_up_is_the_ratio_of_latencies_and_tokens_per_step_leave_the_prefill_out(tmp_path):
    baseline, method = small(tmp_path).run(FakePipeline(latency_s=0.5))
    assert method.row["speedup"] == method.row["speedup_low"] == method.row["speedup_high"] == pytest.approx(2)
    assert baseline.row["speedup"] == baseline.row["tokens_per_step"] == 1
    assert (method.row["latency_s"], method.row["baseline_latency_s"]) == (0.5, 1.0)
    assert method.row["tokens_per_step"] == pytest.approx((NUM_TOKENS - 1) / 8)  # 15 tokens in 8 steps
    assert method.row["target_forwards"] == method.row["drafter_forwards"] == 8
    assert (method.row["draft_ms"], method.row["verify_ms"], method.row["accept_ms"]) == (1.0, 2.0, 0.75)
    assert (method.row["drafter_forward_ms"], method.row["overhead"]) == pytest.approx((0.5, 1.25 / 3.75))


def test_tokens_per_step_count_every_image_once(tmp_path):
    """Catches the timed images, which are judged as well, with twice the weight of the others, and twice in the
    profile."""

    class Uneven(FakePipeline):
        def generate(self, prompts, seeds, batch_size):
            steps = torch.tensor([3 if prompt == "a" else 15 for prompt in prompts])
            return replace(super().generate(prompts, seeds, batch_size), steps=steps)

    found = small(tmp_path, num_timed=1, num_images=3, prompts=("a", "b", "c")).run(Uneven())[-1]
    assert found.row["tokens_per_step"] == pytest.approx(3 * (NUM_TOKENS - 1) / (3 + 15 + 15))
    assert found.profile["images"] == 3
    assert small(tmp_path, 4, 3, prompts=("a", "b", "c")).run(Uneven())[-1].profile["images"] == 3  # new timings alone


def test_baseline_and_method_are_interleaved_on_the_same_prompts(tmp_path):
    order = []

    class Spy(FakePipeline):
        def generate(self, prompts, seeds, batch_size):
            order.append(("ar" if self.drafter == "none" else "method", prompts[0], seeds[0]))
            return super().generate(prompts, seeds, batch_size)

        def baseline(self):
            return Spy("none", None, 1.0)

    small(tmp_path, num_timed=3, num_images=0).run(Spy())
    who = [call[0] for call in order]
    assert who == ["method", "ar", *["ar", "method"], *["method", "ar"], *["ar", "method"]]  # warm-up, then alternating
    assert [call[1:] for call in order if call[0] == "ar"] == [call[1:] for call in order if call[0] == "method"]


def test_ar_images_are_made_once_and_reused_by_the_next_setting_of_the_same_seeds(tmp_path):
    first, second, other = FakePipeline(delta=0.01), FakePipeline(delta=0.1), FakePipeline()
    made = small(tmp_path, num_timed=0).run(first)
    reused = small(tmp_path, num_timed=0).run(second)
    evaluation(tmp_path, ("a", "b"), 0, 5, 4, seed=1).run(other)
    assert [len(pipeline.ar_calls) for pipeline in (first, second, other)] == [2, 0, 2]  # five images, four at once
    assert (made[0].row, made[0].records) == (reused[0].row, reused[0].records)


def test_with_both_sizes_zero_only_the_prompts_images_are_made(tmp_path):
    pipeline = FakePipeline()
    (only,) = small(tmp_path, 0, 0, {}, ("a", "b", "c")).run(pipeline)
    assert pipeline.calls == [(["a", "b", "c"], 4)]
    assert not pipeline.ar_calls
    write_measurements(tmp_path, [only])
    assert only.row["speedup"] is None
    write_measurements(tmp_path, small(tmp_path, 0, 0, {}, ("a", "d")).run(pipeline))
    found = [len(list((tmp_path / name).glob("*.png"))) for name in ("images", "images-1")]
    assert found == [2, 3]  # an earlier request's are not judged along


def test_plain_ar_decoding_gives_one_row(tmp_path):
    (only,) = small(tmp_path).run(FakePipeline("none", None, 1.0))
    assert only.row["speedup"] == 1
    assert only.row["brightness"] > 0


def test_metrics_reject_prompts_before_anything_is_decoded(tmp_path):
    class Picky(Brightness):
        def prepare(self, prompts):
            raise LanternError("no")

    pipeline = FakePipeline()
    with pytest.raises(LanternError):
        small(tmp_path, metrics={"picky": Picky()}).run(pipeline)
    assert not pipeline.calls
    assert not pipeline.ar_calls


def test_two_metrics_with_one_figure_or_setting_are_one_error_and_no_image_is_made_again(tmp_path):
    """Catches the figure, or the setting, of the first, which is lost without a word."""

    class Median(Brightness):
        def __call__(self, images, prompts):
            return {"median": float(images.median())}

        def against(self, images, plain, prompts):
            return {}

        def protocol(self, prompts):
            return {"meter": "median"}

    for other, key in ((Brightness(), "brightness"), (Median(), "meter")):
        with pytest.raises(LanternError, match=f"the metrics one and two both give {key}; leave one out"):
            small(tmp_path, metrics={"one": Brightness(), "two": other}).run(FakePipeline())
    pipeline = FakePipeline()
    small(tmp_path).run(pipeline)
    assert (len(pipeline.calls), len(pipeline.ar_calls)) == (2, 0)  # the method's images, which come after the plain


def test_the_run_folder_holds_rows_records_images_and_summary(tmp_path):
    measured = small(tmp_path).run(FakePipeline())
    write_measurements(tmp_path, measured)
    rows, records = read_rows(tmp_path / "results.jsonl"), read_rows(tmp_path / "prompts.jsonl")
    assert [row["drafter"] for row in rows] == ["none", "eagle"]
    assert len(records) == 2 * (3 + 5)
    assert {record["part"] for record in records} == {"speed", "images"}
    assert all((tmp_path / record["image"]).is_file() for record in records)
    spoken = {(r["method"], r["prompt"], r["copy"], r["part"]): r["tokens"] for r in records}
    assert spoken["fake/ar", "a", 0, "speed"] == spoken["fake/ar", "a", 0, "images"]  # batch 1 and 4, one image
    assert json.loads((tmp_path / "summary.json").read_text())["AR"]["drafter"] == "none"


def test_the_timed_way_from_text_to_image_holds_the_image_decoder(tmp_path):
    row = small(tmp_path, num_images=0).run(FakePipeline())[-1].row
    assert row["end_to_end_s"] > 0  # measured, where latency_s is the stand-in's
    assert row["end_to_end_speedup_low"] <= row["end_to_end_speedup"] <= row["end_to_end_speedup_high"]


def test_several_batches_are_decoded_together_so_that_rows_are_refilled(tmp_path, monkeypatch):
    """Catches a batch that runs empty behind its slowest image before the next begins."""
    monkeypatch.setattr("lantern.evaluation.sides.BATCHES", 4)
    pipeline = FakePipeline()
    small(tmp_path, num_timed=0).run(pipeline)
    assert pipeline.calls == [(["a", "b", "a", "b", "a"], 4)]


def test_timings_of_another_machine_are_measured_again(tmp_path):
    """Catches a requeued job whose mean is of two processors."""
    calls = []
    for machine in ("a", "b", "b"):
        pipeline = FakePipeline()
        evaluation(tmp_path, "ab", 2, 0, 4, protocol={"device": machine}).run(pipeline)
        calls.append(len(pipeline.calls))
    assert calls[0] == calls[1] > calls[2]


def test_only_timed_images_are_shown_where_none_are_made(tmp_path):
    """Catches pictures of an earlier run with more images under the names of this one's prompts."""
    evaluation(tmp_path, "abcdefgh", 8, 8, 1).run(FakePipeline())
    found = evaluation(tmp_path, "abcdefgh", 3, 0, 1).run(FakePipeline())
    assert [len(measured.images) for measured in found] == [3, 3]


@pytest.mark.parametrize("graphs", [True, False, None])
def test_a_row_says_whether_graphs_were_on(tmp_path, graphs):
    """Catches a row whose passes were launched kernel by kernel after a failure that only the log shows, also one that
    comes while images are made."""
    pipeline = FakePipeline()
    decode = pipeline.target.decode

    def decoded(tokens):
        pipeline.target.passes = EagerPasses(graphs)
        return decode(tokens)

    pipeline.target.decode = decoded
    for measured in small(tmp_path).run(pipeline):
        assert measured.row["cuda_graphs"] is graphs
        assert ("CUDA graphs" in (measured.row["warnings"] or "")) == (graphs is False)


@pytest.mark.parametrize(("timed", "made", "batch_size", "most"), [(4, 0, 8, 1), (0, 5, 8, 5), (4, 9, 4, 4)])
def test_the_law_is_measured_in_batches_no_larger_than_the_images_are_made_in(timed, made, batch_size, most, tmp_path):
    """Catches a batch that fits in memory at no point and is asked for once everything is timed, and fewer images than
    the measure is to read."""
    asked = []
    laws = SimpleNamespace(num_images=6, measure=lambda _, prompts, seeds, size: asked.append((len(seeds), size)) or {})
    laws.foreseen = lambda pipeline: {}
    asking = evaluation(tmp_path, "ab", timed, made, batch_size, parts={"laws": laws})
    asking.run(FakePipeline())
    assert asking.request.images_at_once == most
    assert asked == [(6, most)]


def test_the_speed_up_over_compiled_plain_decoding_is_in_the_row_where_it_is_asked_for(tmp_path):
    """Catches a slow second baseline that nobody asked for, and one that is timed anew from records."""
    asked = evaluation(tmp_path, "abc", 3, 0, 4, compiled_baseline=True)
    plain, method = (measured.row for measured in asked.run(FakePipeline(latency_s=0.5)))
    assert (method["speedup"], method["speedup_over_compiled"]) == pytest.approx((2.0, 1.6))
    assert (plain["speedup"], plain["speedup_over_compiled"]) == pytest.approx((1.0, 0.8))
    assert [measured.row for measured in replace(asked).run(FakePipeline(latency_s=0.5))] == [plain, method]
    compiled = FakePipeline()
    compiled.target.compiles = True
    without = [small(tmp_path / "a").run(FakePipeline()), replace(asked).run(compiled)]
    assert {measured.row["speedup_over_compiled"] for both in without for measured in both} == {None}


def test_the_compiled_baseline_is_plain_decoding_on_the_same_weights():
    target = tiny_target()
    compiled = Pipeline(target, NoDrafter(), SharedNoise(), Exact(), Sampling()).compiled_baseline()
    assert is_baseline(compiled.describe())
    assert (compiled.target.compiles, target.compiles) == (True, False)
    assert compiled.target.weights_hash == target.weights_hash


def test_images_that_are_decoded_when_they_are_judged_give_the_same_row_and_files(tmp_path, monkeypatch):
    """Catches a metric that takes the images of a large run for a tensor, or loses one between batches."""
    found = []
    for kept in (1 << 30, 0):
        monkeypatch.setattr("lantern.evaluation.sides.KEPT_PIXELS", kept)
        references = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        fidelity = Fidelity(MeanColour(), lambda prompts, count, real=references: real, 16, resamples=3)
        metrics = {"fidelity": fidelity, "diversity": Diversity(MeanColour()), "pairs": ImageDifference()}
        folder = tmp_path / str(kept)
        measured = small(folder, num_timed=0, num_images=70, metrics=metrics).run(FakePipeline())
        assert isinstance(measured[1].images, torch.Tensor) == bool(kept)
        write_measurements(folder, measured)
        files = [sorted(file.read_bytes() for file in one.folder.glob("*.png")) for one in measured]
        found.append(([one.row for one in measured], files))
    assert found[0] == found[1]
    assert [len(files) for files in found[0][1]] == [70, 70]
