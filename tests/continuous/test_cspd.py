"""CSpD's rule as published, its residual draws, and how far its factor and its released temperature move the law."""

import pytest
import torch
from torch import Tensor

from lantern.continuous.cspd import draw_residual, log_ratio
from lantern.continuous.gaussian_ratio import judge_draft
from lantern.continuous.latent_sampling import GaussianNoise

SHIFT = 1.0  # (mean_q - mean_p) / s
LINE = torch.linspace(-9, 9, 20001, dtype=torch.float64)
CELL = float(LINE[1] - LINE[0])


def normal(mean: float, sigma: float = 1.0) -> Tensor:
    return torch.distributions.Normal(mean, sigma).log_prob(LINE).exp()


def total_variation(law: Tensor, p: Tensor) -> float:
    return float((law - p).abs().sum() / 2) * CELL


def published_law(p: Tensor, q: Tensor, factor: float) -> Tensor:
    """On a grid: min(q, F p) is accepted, the rest drawn from norm(max(F p - q, 0))."""
    accepted = torch.minimum(q, factor * p)
    residual = (factor * p - q).clamp(min=0)
    return accepted + (1 - accepted.sum() * CELL) * residual / (residual.sum() * CELL)


def whole_token(variances_p: tuple[float, float], variances_q: tuple[float, float], gap: float, factor) -> float:
    """The total variation of a token drawn in two steps, x_1 = s_1 z, x_0 = x_1 + gap + s_0 e, the published rule
    applied to x_0 for each z: averaged over z it should be p's law of x_0."""
    nodes = torch.linspace(-5, 5, 161, dtype=torch.float64)
    weights = (-nodes.square() / 2).exp() / (-nodes.square() / 2).exp().sum()
    law, p_law = torch.zeros_like(LINE), torch.zeros_like(LINE)
    for z, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        p = normal(variances_p[0] ** 0.5 * z, variances_p[1] ** 0.5)
        q = normal(variances_q[0] ** 0.5 * z + gap, variances_q[1] ** 0.5)
        law, p_law = law + weight * published_law(p, q, factor(variances_p[0], variances_q[0])), p_law + weight * p
    return total_variation(law, p_law)


def surrogate(of_p: float, of_q: float) -> float:
    return (of_q / of_p) ** 0.5


def test_with_learnt_variances_the_published_factor_moves_the_law():
    """0.094 of total variation where q's earlier step has twice p's variance. Without the factor, which is 1 for fixed
    variances, the law is exact."""
    found = whole_token((0.5, 1.0), (1.0, 1.0), 0.7, surrogate)
    assert found == pytest.approx(0.094, abs=1e-3)
    assert whole_token((0.5, 1.0), (1.0, 1.0), 0.7, lambda of_p, of_q: 1.0) < 1e-6


def test_the_released_temperature_moves_the_law_nearly_to_the_drafts():
    """Means one s apart: TV(q, p) is 0.383. Catches a temperature that is stated and not applied."""
    p, q = normal(0.0), normal(SHIFT)
    kept = (log_ratio(LINE[:, None], torch.full_like(LINE[:, None], SHIFT)) / 42).clamp(max=0).exp() * q
    residual = (p - q).clamp(min=0)
    law = kept + (1 - kept.sum() * CELL) * residual / (residual.sum() * CELL)
    assert total_variation(q, p) == pytest.approx(0.383, abs=1e-3)
    assert 0.36 < total_variation(law, p) < 0.383


def test_redraws_have_the_law_of_the_reflections():
    """Both draw norm(max(p - q, 0)). Catches draws kept by the inverse ratio, and coins shared with draws."""
    count, shift = 6000, torch.tensor([0.9, -0.5], dtype=torch.float64)
    noise = GaussianNoise(count, (2, 2), 0)
    noise.admit(torch.arange(count), torch.arange(count))
    found = draw_residual(noise, shift.expand(count, -1))
    own = torch.randn(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    accept, replaced = judge_draft(own, shift.expand_as(own))
    rest = 1 - accept
    mean = (rest[:, None] * replaced).sum(0) / rest.sum()
    torch.testing.assert_close(found.mean(0), mean, rtol=0, atol=0.08)
    assert ((found * shift).sum(1) < shift.square().sum() / 2).all()  # where p exceeds q
