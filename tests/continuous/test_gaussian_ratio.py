"""Speculative sampling between the two Gaussians of the last denoising step, by integration over the draft's noise."""

import pytest
import torch
from torch import Tensor

from lantern.continuous.cspd import log_ratio
from lantern.continuous.gaussian_ratio import judge_draft

MEAN_P, SIGMA = torch.tensor([0.3, -0.2], dtype=torch.float64), 0.4
SHIFTS = {
    "near": torch.tensor([0.05, 0.02], dtype=torch.float64),
    "apart": torch.tensor([-0.8, 0.6], dtype=torch.float64),
    "far": torch.tensor([1.5, 2.5], dtype=torch.float64),
    "none": torch.zeros(2, dtype=torch.float64),
}
STEPS = 161


def grid() -> tuple[Tensor, Tensor]:
    """Points [M, 2] and weights [M] of the standard normal in the plane."""
    line = torch.linspace(-6, 6, STEPS, dtype=torch.float64)
    weight = (-line.square() / 2).exp()
    points = torch.cartesian_prod(line, line)
    weights = torch.cartesian_prod(weight, weight).prod(1)
    return points, weights / weights.sum()


def committed_moments(shift: Tensor, judge=judge_draft) -> Tensor:
    """The `moments` of the committed token, with drafts from N(MEAN_P + SIGMA shift, SIGMA^2)."""
    own, weights = grid()
    accept, replaced = judge(own, shift.expand_as(own))
    tokens = MEAN_P + SIGMA * torch.cat([own + shift, replaced])
    return moments(tokens, torch.cat([weights * accept, weights * (1 - accept)]))


def moments(tokens: Tensor, weights: Tensor) -> Tensor:
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, -0.8]], dtype=torch.float64)
    along = (tokens - MEAN_P) @ directions.T / SIGMA  # [M, 3]
    at = torch.linspace(-2.03, 1.97, 9, dtype=torch.float64)
    below = torch.sigmoid((at[:, None, None] - along) * 8)  # smooth, so that a grid integrates it well
    first, second = tokens.T @ weights, (tokens.T * weights) @ tokens
    return torch.cat([(below * weights[:, None]).sum(1).flatten(), first, second.flatten()])


def targets_moments() -> Tensor:
    own, weights = grid()
    return moments(MEAN_P + SIGMA * own, weights)


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_the_committed_law_is_the_targets_and_no_coupling_accepts_more(shift):
    """By integration over every draft and coin; the overlap of two Gaussians is 2 Phi(-|shift| / 2)."""
    torch.testing.assert_close(committed_moments(shift), targets_moments(), rtol=0, atol=2e-5)
    own, weights = grid()
    accept, _ = judge_draft(own, shift.expand_as(own))
    overlap = 2 * torch.special.ndtr(-shift.norm() / 2)
    assert float((accept * weights).sum()) == pytest.approx(float(overlap), abs=2e-4)


def test_the_acceptance_is_the_ratio_of_the_densities():
    """Against torch's own densities, one draft at a time. Catches a sign or a factor in the closed form."""
    shift = SHIFTS["apart"]
    p, q = (torch.distributions.Normal(mean, SIGMA) for mean in (MEAN_P, MEAN_P + SIGMA * shift))
    for own in torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)):
        draft = MEAN_P + SIGMA * (shift + own)
        ratio = (p.log_prob(draft) - q.log_prob(draft)).sum().exp()
        assert float(judge_draft(own, shift)[0]) == pytest.approx(min(1.0, float(ratio)))
        assert float(log_ratio(own + shift, shift).exp()) == pytest.approx(float(ratio))


def wrong_reflection(own: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """In an axis in place of the direction between the means; -e itself would do, since all else is symmetric."""
    return judge_draft(own, shift)[0], own * torch.tensor([-1.0, 1.0])


def coin_of_the_draft(own: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """The coin is a function of the noise that drew the draft."""
    accept, replaced = judge_draft(own, shift)
    return (torch.special.ndtr(own[..., 0]) < accept).double(), replaced


WRONG = [wrong_reflection, coin_of_the_draft]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_an_error_is_found(wrong):
    """Catches an integration that would accept anything."""
    assert (committed_moments(SHIFTS["apart"], wrong) - targets_moments()).abs().max() > 1e-2
