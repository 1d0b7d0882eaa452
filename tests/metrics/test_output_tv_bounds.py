"""The bounds of the output TV hold where positions of one image resemble one another."""

from collections import Counter

import numpy as np
import pytest
from support.toy import PROMPTS, SEEDS, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.metrics.output_tv import OutputTV, summary
from lantern.metrics.recording_drafter import RecordingDrafter
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.trees.static import chain
from lantern.verification.ratio import Ratio
from lantern.verification.shared_noise import SharedNoise


def test_positions_of_one_image_count_as_one_where_they_are_alike():
    """Catches bounds as if 200 positions of 8 images were independent: they would be a fifth as wide."""
    by_image = np.linspace(0.1, 0.3, 8)
    images = np.repeat(np.arange(8), 25)
    found, alone = summary("output_tv", by_image[images], images), summary("output_tv", by_image, np.arange(8))
    for key in ("output_tv", "output_tv_low", "output_tv_high"):
        assert found[key] == pytest.approx(alone[key])
    margin = 2.36 * by_image.std(ddof=1) / 8**0.5
    assert found["output_tv_high"] - found["output_tv"] == pytest.approx(margin, rel=0.1)


def test_the_bounds_cover_the_mean_as_often_as_they_say():
    """Catches intervals that are too narrow: independent positions would cover 80 times in 100 here."""
    rng, covered = np.random.default_rng(0), 0
    images = np.repeat(np.arange(8), 24)
    for _ in range(200):
        values = 0.3 + 0.05 * rng.standard_normal(8)[images] + 0.15 * rng.standard_normal(len(images))
        found = summary("output_tv", values, images)
        covered += found["output_tv_low"] <= 0.3 <= found["output_tv_high"]
    assert 180 <= covered <= 198


def test_one_image_has_no_bounds():
    found = summary("output_tv", np.array([0.1, 0.2]), np.zeros(2))
    assert np.isnan(found["output_tv_low"])
    assert np.isnan(found["output_tv_high"])


def test_a_position_knows_its_image_while_rows_come_and_go():
    """Catches positions that are counted by row, which several images take in turn."""
    target = tiny_target()
    recording = RecordingDrafter(tiny_eagle(target, chain(2), Sampling()), 1)
    pipeline = Pipeline(target, recording, Ratio(), Exact(), Sampling())
    pipeline.generate(["a", "b", "c", "a", "b"], list(range(5)), 2)
    counts = Counter(visit.image for visit in recording.visits)
    assert sorted(counts) == list(range(5))
    assert sum(counts.values()) == 5 * (target.num_tokens - 1)
    assert set(counts.values()) == {target.num_tokens - 1}


@pytest.mark.parametrize("verification", [Ratio(), SharedNoise()], ids=["ratio", "shared noise"])
def test_a_lossy_rule_that_moved_nothing_has_an_upper_bound_and_an_exact_one_needs_none(verification):
    """Catches [0, 0] for a rule of which four images say only that it seldom moves anything."""
    target, sampling, measured = tiny_target(), Sampling(), OutputTV(4, 40, 16)
    found = {}
    for rule in (Exact(), Lantern(target.codebook, 3, 1e-12)):
        pipeline = Pipeline(target, tiny_eagle(target, chain(2), sampling), verification, rule, sampling)
        found[rule.name] = measured.measure(pipeline, PROMPTS[:4], SEEDS[:4], 4)
        assert found[rule.name]["output_tv"] == pytest.approx(0, abs=1e-9)
        assert found[rule.name]["output_tv_low"] == pytest.approx(0, abs=1e-9)
    assert found["exact"]["output_tv_high"] == pytest.approx(0, abs=1e-9)
    assert found["lantern"]["output_tv_high"] == pytest.approx(1 - 0.05**0.25)
    assert np.isnan(found["lantern"]["code_distance_high"])
