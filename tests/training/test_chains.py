"""From losses per site to a step's loss: each objective against a loop over chains."""

from dataclasses import replace

import pytest
import torch
from support.recipes import feature_lk

from lantern.errors import LanternError
from lantern.training.drafter.losses import ConditionalDrop, Decayed, DynamicPace, ExpectedLength, Mean, chained_length

DEPTH, IMAGES, ROOTS = 4, 2, 5


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOSSES, ALPHAS = uniform(DEPTH, IMAGES, ROOTS, seed=1), uniform(DEPTH, IMAGES, ROOTS, seed=2)


def by_chain(objective, chain_loss) -> None:
    expected = [
        chain_loss(LOSSES[:, b, s].tolist(), ALPHAS[:, b, s].tolist()) for b in range(IMAGES) for s in range(ROOTS)
    ]
    assert objective(LOSSES, ALPHAS).item() == pytest.approx(sum(expected) / len(expected), rel=1e-12)


def test_objectives_are_their_formulas_by_chain():
    """Catches weights of another depth, and sums in the place of means."""
    by_chain(Mean(), lambda losses, _: sum(losses) / DEPTH)
    by_chain(Decayed(0.8), lambda losses, _: sum(0.8**d * loss for d, loss in enumerate(losses)))

    def paced(losses: list[float], alphas: list[float]) -> float:
        reached, product = [], 1.0
        for alpha in alphas:
            product *= 0.5 * alpha + 0.5
            reached.append(product)
        return sum(sum(reached[d:]) * loss for d, loss in enumerate(losses)) / DEPTH

    by_chain(DynamicPace(0.5), paced)


def test_the_expected_length_is_that_of_simulated_chains():
    """A law test: chains whose drafts are accepted with probability 1 - loss, simulated; the bound is five standard
    errors."""
    count = 40_000
    accepted = uniform(count, DEPTH, IMAGES, ROOTS, seed=3) < 1 - LOSSES
    lengths = 1 + accepted.double().cumprod(1).sum(1)  # the token that follows the accepted ones counts
    found = -ExpectedLength()(LOSSES, ALPHAS).item()
    error = lengths.mean((1, 2)).std().item() / count**0.5
    assert abs(found - lengths.mean().item()) < 5 * error


def test_the_gradient_of_the_expected_length_is_that_of_finite_differences():
    losses = LOSSES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ExpectedLength()(x, ALPHAS), losses)


def test_a_dropped_chain_has_all_passes_before_and_none_behind():
    """The shares are the published ones at every step; which chains they are is drawn anew. Catches passes without the
    keys they attend to, and chains that are always dropped."""
    drop, generator = ConditionalDrop(0.7, 0.2), torch.Generator().manual_seed(0)
    drawn = torch.stack([drop.passes(100, 6, generator) for _ in range(400)])
    for passes in drawn:
        assert [int((passes > d).sum()) for d in range(6)] == [100, 70, 49, 34, 24, 20]
    expected = (100 + 70 + 49 + 34 + 24 + 20) / 100
    assert (drawn.float().mean(0) - expected).abs().max() < 5 * drawn.float().std() / 20
    assert drop.passes(1, 6, generator).tolist() == [6]


def test_an_objective_of_whole_chains_refuses_dropped_ones():
    """Catches a dropped site that counts as one that is always accepted, or never."""
    for objective in (DynamicPace(0.5), ExpectedLength()):
        with pytest.raises(LanternError, match=rf"recipe\.drop.*{type(objective).__name__}.*Mean or Decayed"):
            replace(feature_lk(), objective=objective, drop=ConditionalDrop(0.7, 0.2))


def test_chained_length_follows_the_diagonal():
    """Reference: a loop over chains. Catches overlaps of all depths taken at the same token."""
    alphas = uniform(3, 2, 6)
    lengths = []
    for image in range(2):
        for root in range(4):
            product, length = 1.0, 0.0
            for d in range(3):
                product *= alphas[d, image, root + d].item()
                length += product
            lengths.append(length)
    assert chained_length(alphas).item() == pytest.approx(sum(lengths) / len(lengths))


def test_a_perfect_drafter_is_accepted_at_every_depth():
    assert chained_length(torch.ones(5, 1, 9)).item() == 5
