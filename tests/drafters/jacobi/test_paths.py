"""Jacobi windows side by side, and windows that keep tokens by confidence: their laws by enumeration."""

from functools import partial

import pytest
from support.small_laws import found
from support.toy import PROMPTS, SEEDS, tiny_target

from lantern.acceptance.exact import Exact
from lantern.drafters.jacobi.jacobi import Jacobi, KeepConfident, redraw
from lantern.drafters.jacobi.paths import JacobiPaths
from lantern.drafters.jacobi.starts import Nearest
from lantern.errors import LanternError
from lantern.laws.tables import TableTarget, many_images, p_value, sequence_law
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.verification import Ratio, SharedNoise
from lantern.verification.traversal import Traversal

SMALL = ((2, 5),)
WINDOW = partial(Jacobi, length=2, start=Nearest())


@pytest.mark.parametrize("verification", [Ratio(), Traversal()], ids=["ratio", "traversal"])
def test_paths_judged_as_one_tree_keep_the_law(verification):
    """Catches root children that are no draws without replacement, and a node with the law of another path."""
    assert found(SMALL, verification=verification, drafter=partial(JacobiPaths, length=2, paths=2)) < 1e-9


@pytest.mark.parametrize("cut", [{}, {"top_k": 2}], ids=["none", "top_k"])
def test_many_images_of_three_paths_follow_the_target_law(cut):
    """Catches draws of two paths with one key, and a path whose first token is outside the support of q."""
    target, sampling = TableTarget(vocab_size=3, num_tokens=5, cfg_scale=1.0), Sampling(cfg_scale=1.0, **cut)
    images = many_images(target, JacobiPaths(target, 3, 3, sampling), Ratio(), sampling)
    assert p_value(images, sequence_law(target, sampling)) > 1e-6


def test_tokens_kept_by_confidence_change_the_law_and_the_pipeline_says_so():
    """Catches SJD++ called lossless because its rule and verification are; a threshold never reached redraws all."""
    assert found(SMALL, verification=Ratio(), drafter=partial(WINDOW, redraw=redraw)) < 1e-9
    assert found(SMALL, verification=Ratio(), drafter=partial(WINDOW, redraw=KeepConfident(0.5))) > 1e-3
    assert found(SMALL, verification=Ratio(), drafter=partial(WINDOW, redraw=KeepConfident(1e9))) < 1e-9
    target, sampling = tiny_target(), Sampling()
    made = WINDOW(target, redraw=KeepConfident(0.5), sampling=sampling, name="sjd_pp")
    assert not Pipeline(target, made, Ratio(), Exact(), sampling).lossless
    assert Pipeline(target, WINDOW(target, redraw=redraw, sampling=sampling), Ratio(), Exact(), sampling).lossless


def test_bad_settings_are_one_clear_error():
    """Catches one path, a window of one token, and shared noise, under which all paths would be equal."""
    sampling, target = Sampling(), tiny_target()
    for length, paths, said in ((1, 2, "length=1 is"), (3, 1, "paths=1 is"), (3, 10**6, "length=3, paths=1000000 ")):
        with pytest.raises(LanternError, match=f"drafter.{said}"):
            JacobiPaths(target, length, paths, sampling)
    with pytest.raises(LanternError, match=r"redraw\.threshold=-1"):
        KeepConfident(-1)
    paths = Pipeline(target, JacobiPaths(target, 3, 2, sampling), SharedNoise(), Exact(), sampling)
    with pytest.raises(LanternError, match="shared noise allows one"):
        paths.generate(PROMPTS[:1], SEEDS[:1])
