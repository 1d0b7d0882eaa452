"""The decoding loop on continuous tokens: on a linear Gaussian target the joint law of an image is known."""

from functools import partial

import pytest
import torch
from support import toy
from support.evaluations import evaluation
from support.latents import CHANNELS, LENGTH, LinearTarget
from support.toy import tiny_target
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.continuous.cspd import CSpD
from lantern.continuous.gaussian_ratio import GaussianRatio
from lantern.continuous.gaussian_shared import GaussianShared, Tolerance
from lantern.continuous.latent_jacobi import LatentJacobi
from lantern.continuous.latent_sampling import LatentSampling
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.evaluation.records import unpack
from lantern.evaluation.rows import read_rows
from lantern.metrics.token_distance import TokenDistance
from lantern.pipeline import Pipeline, pipelines
from lantern.sampling import Sampling
from lantern.streaming import stream
from lantern.trees.static import chain
from lantern.types import Generation
from lantern.verification import Ratio

SETTINGS = {
    "ratio": (GaussianRatio, Exact()),
    "shared": (GaussianShared, Tolerance(1e-6)),
    "cspd": (partial(CSpD, alone=0.2), Exact()),
}


def decode(verification, rule=None, length: int = 3, count: int = 8, batch_size: int = 3, cfg_scale=2.0) -> Generation:
    """Images of one prompt; length 0 is plain decoding."""
    target = LinearTarget(cfg_scale)
    drafter = LatentJacobi(target, length) if length else NoDrafter()
    prompts, seeds = ["x"] * count, range(100, 100 + count)
    sampling = LatentSampling(cfg_scale=cfg_scale)
    return toy.decode(target, drafter, sampling, batch_size, verification(target), rule, prompts, seeds)


def deviation(tokens: Tensor, target: LinearTarget) -> float:
    """The largest deviation of means and covariances [B, L, C] from the target's, in standard errors."""
    mean, covariance = target.law()
    flat, count = tokens.flatten(1), len(tokens)
    spread = covariance.diagonal()
    of_means = (flat.mean(0) - mean) / (spread / count).sqrt()
    centred = flat - mean
    of_products = centred.T @ centred / count - covariance
    of_products = of_products / ((spread[:, None] * spread + covariance.square()) / count).sqrt()
    return float(torch.cat([of_means, of_products.flatten()]).abs().max())


@pytest.mark.parametrize("cfg_scale", [pytest.param(1.0, marks=pytest.mark.full), 2.0])
@pytest.mark.parametrize("setting", [None, *SETTINGS])
def test_an_image_has_the_targets_law(setting, cfg_scale):
    """90 moments of 3000 images within 4.5 standard errors: false alarms once in 1600 runs."""
    verification, rule = SETTINGS[setting or "shared"]
    found = decode(verification, rule, 3 if setting else 0, count=3000, batch_size=3000, cfg_scale=cfg_scale)
    assert deviation(found.tokens, LinearTarget(cfg_scale)) < 4.5
    assert (found.tokens_per_step > 1.05) == bool(setting)


@pytest.mark.parametrize("length", [1, 3, LENGTH + 2])
def test_under_shared_noise_the_image_is_plain_decodings(length):
    """Catches a window that is shifted by a position, and a draft that is not the target's own token."""
    plain = decode(GaussianShared, length=0)
    found = decode(GaussianShared, Tolerance(1e-6), length)
    torch.testing.assert_close(found.tokens, plain.tokens, rtol=0, atol=1e-5)
    assert found.steps.sum() < plain.steps.sum()
    exact = decode(GaussianShared, Exact(), length)  # tolerance 0: the target's own tokens alone
    torch.testing.assert_close(exact.tokens, plain.tokens, rtol=0, atol=1e-12)
    loose = decode(GaussianShared, Tolerance(10.0), length)
    assert loose.steps.sum() < found.steps.sum() or length == 1
    assert not torch.allclose(loose.tokens, plain.tokens, atol=1e-3)


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_image_does_not_depend_on_its_batch(setting):
    """Catches noise, coins or windows keyed by the row, and rows that are shrunk or refilled wrongly."""
    verification, rule = SETTINGS[setting]
    runs = [decode(verification, rule, batch_size=size) for size in (1, 3, 8)]
    for run in runs:
        torch.testing.assert_close(run.tokens, runs[0].tokens, rtol=0, atol=1e-9)
        assert run.tokens.shape == (8, LENGTH, CHANNELS)
        assert 0 < run.head_s < run.latency_s  # the head's time is a part of accepting


def joined(drafter=None, verification=None, rule=None, sampling=None) -> Pipeline:
    """The pipeline of the config groups' objects."""
    drafter = drafter or partial(LatentJacobi, length=3)
    parts = rule or Exact(), verification or partial(GaussianRatio), sampling or LatentSampling()
    return pipelines(LinearTarget(), drafter, *parts, "linear")(chain(3))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"verification": Ratio()}, r"verification=ratio or .* use verification=gaussian_ratio"),
        ({"drafter": partial(Jacobi, length=3, start=Nearest(), redraw=redraw_coupled)}, "drafter=jacobi drafts codes"),
        ({"rule": Tolerance(0.1)}, r"verification=gaussian_ratio relaxes nothing"),
        ({"sampling": Sampling()}, r"and the sampling of its yaml"),
    ],
)
def test_parts_of_codes_and_latents_do_not_mix(parts, message):
    """Catches a traceback out of the arithmetic."""
    with pytest.raises(LanternError, match=message):
        joined(**parts).generate(["x"], [0])
    with pytest.raises(LanternError, match="LlamaGenTarget has codes and no diffusion head"):
        GaussianRatio(tiny_target())


def test_a_pipeline_knows_what_is_lossless_and_what_plain_decoding_is(monkeypatch):
    """Catches CSpD or a tolerance called lossless, and a baseline under another verification's noise."""
    assert not joined().lossless  # a target of the tests' own has no certificate
    monkeypatch.setattr(LinearTarget, "__module__", "lantern.continuous.target")
    assert joined().lossless
    assert joined(rule=Tolerance(0.0), verification=partial(GaussianShared)).lossless
    assert not joined(rule=Tolerance(1e-3), verification=partial(GaussianShared)).lossless
    assert not joined(verification=partial(CSpD)).lossless
    plain, method = joined().baseline(), joined(rule=Tolerance(1e-6), verification=partial(GaussianShared))
    assert plain.describe()["verification"] == "gaussian_shared"
    tokens = [pipeline.generate(["x", "y"], [1, 2]).tokens for pipeline in (plain, method)]
    torch.testing.assert_close(*tokens, rtol=0, atol=1e-5)
    assert method.describe()["acceptance.eps"] == 1e-6


def test_a_row_of_latents_is_measured_and_read_back(tmp_path):
    """Catches tokens that are stored as integers, and a row without the head's milliseconds or the output distance."""
    measuring = evaluation(tmp_path, ["x", "y"], 2, 4, 3, parts={"laws": TokenDistance(2, 4, 64)})
    first = [measured.row for measured in measuring.run(joined())]
    again = [measured.row for measured in measuring.run(joined())]
    for row in first:
        round_ms = row["draft_ms"] + row["verify_ms"] + row["accept_ms"]
        assert 0 < row["head_ms"] < row["accept_ms"]
        assert row["overhead"] == pytest.approx(1 - (row["verify_ms"] + row["head_ms"]) / round_ms)
    assert first[1]["output_distance_positions"] >= 4
    assert [row["latency_s"] for row in again] == [row["latency_s"] for row in first]  # read, not made again
    line = next(line for line in read_rows(tmp_path / "prompts.jsonl") if not line["method"].endswith("/ar"))
    made = joined().generate([line["prompt"]], [line["seed"]]).tokens[0]
    torch.testing.assert_close(unpack(line["codes"]), made.float())


def test_a_stream_tells_what_is_committed_of_an_image_of_latents():
    """Catches committed tokens counted as codes are, by their sign."""
    pipeline = joined()
    values = list(stream(pipeline, "x", 100))
    for value in values:
        assert bool(value.tokens[: value.committed].isfinite().all())
        assert bool(value.tokens[value.committed :].isnan().all())
    assert [value.is_complete for value in values] == [False] * (len(values) - 1) + [True]
    assert torch.equal(values[-1].tokens, pipeline.generate(["x"], [100]).tokens[0])
