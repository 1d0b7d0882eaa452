"""A row says by how much a method beats plain decoding at its fastest, where that is timed as well."""

from dataclasses import replace

import pytest
from support.fake_pipeline import FakePipeline
from support.toy import tiny_target

from lantern.acceptance.exact import Exact
from lantern.drafters.none import NoDrafter
from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.plan import Plan
from lantern.evaluation.rows import is_baseline
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.verification.shared_noise import SharedNoise
from tools.results import COLUMNS

PLAN = Plan("abc", 3, 0, 4, compiled_baseline=True)


def rows(folder, plan, pipeline) -> list[dict]:
    return [m.row for m in Evaluation(replace(plan, folder=folder)).run(pipeline)]


def test_both_ratios_are_in_the_row_and_the_docs_quote_the_smaller(tmp_path):
    """Catches a headline against plain decoding that a setting would make faster."""
    plain, method = rows(tmp_path, PLAN, FakePipeline(latency_s=0.5))
    assert (method["speedup"], method["speedup_over_compiled"]) == pytest.approx((2.0, 1.6))
    assert method["speedup_over_compiled_low"] == method["speedup_over_compiled_high"] == pytest.approx(1.6)
    assert (plain["speedup"], plain["speedup_over_compiled"]) == pytest.approx((1.0, 0.8))
    assert COLUMNS["speedup"][1](method) == "1.60 [1.60, 1.60]"
    assert COLUMNS["speedup"][1](method | {"speedup_over_compiled": None}) == "2.00 [2.00, 2.00]"
    assert rows(tmp_path, PLAN, FakePipeline(latency_s=0.5)) == [plain, method]  # from the records


def test_only_one_ratio_is_there_unless_asked_or_where_plain_decoding_is_compiled(tmp_path):
    """Catches a slow second baseline that nobody asked for."""
    asked = rows(tmp_path / "a", replace(PLAN, compiled_baseline=False), FakePipeline())
    compiled = FakePipeline()
    compiled.target.compiles = True
    assert [row["speedup_over_compiled"] for row in (*asked, *rows(tmp_path / "b", PLAN, compiled))] == [None] * 4


def test_the_compiled_baseline_is_plain_decoding_on_the_same_weights():
    target = tiny_target()
    pipeline = Pipeline(target, NoDrafter(), SharedNoise(), Exact(), Sampling())
    compiled = pipeline.compiled_baseline()
    assert is_baseline(compiled.describe())
    assert (compiled.target.compiles, pipeline.target.compiles) == (True, False)
    assert compiled.target.weights_hash == target.weights_hash
