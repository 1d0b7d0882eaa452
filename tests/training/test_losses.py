"""Losses between two laws, each against its formula written out and its gradient against finite differences; and the
objectives of chains, each against a loop over chains."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from lantern.training.drafter.losses import (
    AdaptiveHybrid,
    Blend,
    CrossEntropy,
    Decayed,
    LogOverlap,
    Mean,
    Part,
    Sites,
    TopCodes,
    overlap,
)
from lantern.training.drafter.teacher_forcing import site_losses

CODES = 7


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def laws(*shape: int, seed: int) -> Tensor:
    return random(*shape, seed=seed).softmax(-1)


def sites(p: Tensor, logits: Tensor) -> Sites:
    return Sites(p, logits.log_softmax(-1))


LOSSES = {
    "cross_entropy": CrossEntropy(),
    "top_codes": TopCodes(3),
    "log_overlap": LogOverlap(),
    "adaptive_hybrid": AdaptiveHybrid(3.0),
    "blend": Blend([Part(0.3, CrossEntropy()), Part(2.0, LogOverlap())]),
}


def formula(name: str, p: list[float], q: list[float]) -> float:
    """Each loss at one site by plain numbers."""
    codes = range(CODES)
    alpha = sum(min(p[x], q[x]) for x in codes)
    ce = -sum(p[x] * log(q[x]) for x in codes)
    best = sorted(codes, key=lambda x: -p[x])[:3]
    share = exp(-3 * alpha)
    return {
        "cross_entropy": ce,
        "top_codes": -sum(p[x] * log(q[x]) for x in best),
        "log_overlap": -log(alpha),
        "adaptive_hybrid": share * sum(p[x] * log(p[x] / q[x]) for x in codes) + (1 - share) * (1 - alpha),
        "blend": 0.3 * ce - 2.0 * log(alpha),
    }[name]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_its_formula(name):
    """Catches a wrong sign, a law in the other's place, and a normalisation that is missing."""
    p, logits = laws(5, CODES, seed=0), random(5, CODES, seed=1)
    q = logits.softmax(-1)
    found = LOSSES[name](sites(p, logits)).tolist()
    rows = zip(p.tolist(), q.tolist(), strict=True)
    assert found == pytest.approx([formula(name, *row) for row in rows], rel=1e-12)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "adaptive_hybrid"])
def test_a_gradient_is_that_of_finite_differences(name):
    p, logits = laws(5, CODES, seed=0), random(5, CODES, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](sites(p, x)), logits)


def test_no_gradient_passes_through_the_adaptive_share():
    """Reference: the same sum with the share as a given number."""
    p, logits = laws(5, CODES, seed=0), random(5, CODES, seed=1).requires_grad_()
    share = torch.exp(-3 * overlap(p, logits.detach().softmax(-1)))

    def given_share(x: Tensor) -> Tensor:
        log_q = x.log_softmax(-1)
        return share * (p * (p.log() - log_q)).sum(-1) + (1 - share) * (1 - overlap(p, log_q.exp()))

    assert torch.autograd.gradcheck(given_share, logits)
    slow = torch.autograd.grad(given_share(logits).sum(), logits)[0]
    fast = torch.autograd.grad(LOSSES["adaptive_hybrid"](sites(p, logits)).sum(), logits)[0]
    assert torch.allclose(slow, fast, atol=1e-12)


class Head:
    """A teaching with random laws: p by position, a linear head."""

    def __init__(self) -> None:
        self.laws, self.head = laws(3, 9, CODES, seed=0), random(CODES, 4, seed=2)

    def p(self, images: slice, positions: Tensor) -> Tensor:
        return self.laws[images][:, positions]

    def scores(self, rows: Tensor) -> Tensor:
        return rows @ self.head.T

    def scores_to_rows(self, gradient: Tensor) -> Tensor:
        return gradient @ self.head


@pytest.mark.parametrize("at_once", [1, 5, 100])
@pytest.mark.parametrize("name", LOSSES)
def test_blocks_of_sites_are_what_autograd_finds_over_all_sites(name, at_once, monkeypatch):
    """Reference: every site of every pass in one expression. Catches a block's laws at another's positions, and a
    gradient that ignores what follows the losses."""
    monkeypatch.setattr("lantern.training.drafter.teacher_forcing.SITES_AT_ONCE", {"cpu": at_once})
    teaching, drafted, upstream = Head(), random(3, 3, 7, 4, seed=5), random(3, 3, 7, seed=6)
    fast, slow = drafted.clone().requires_grad_(), drafted.clone().requires_grad_()
    losses, alphas = site_losses(fast, teaching, LOSSES[name])
    (losses.square() * upstream).sum().backward()
    for d in range(3):
        p = teaching.laws[:, d : d + 7]
        log_q = (slow[d] @ teaching.head.T).log_softmax(-1)
        expected = LOSSES[name](Sites(p, log_q))
        (expected.square() * upstream[d]).sum().backward()
        assert torch.allclose(losses[d], expected, atol=1e-12)
        assert torch.allclose(alphas[d], overlap(p, log_q.exp()), atol=1e-12)
    assert torch.allclose(fast.grad, slow.grad, atol=1e-12)


DEPTH, IMAGES, ROOTS = 4, 2, 5


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SITE_LOSSES = uniform(DEPTH, IMAGES, ROOTS, seed=1)


def by_chain(objective, chain_loss) -> None:
    expected = [chain_loss(SITE_LOSSES[:, b, s].tolist()) for b in range(IMAGES) for s in range(ROOTS)]
    assert objective(SITE_LOSSES).item() == pytest.approx(sum(expected) / len(expected), rel=1e-12)


def test_objectives_are_their_formulas_by_chain():
    """Catches weights of another depth, and sums in the place of means."""
    by_chain(Mean(), lambda losses: sum(losses) / DEPTH)
    by_chain(Decayed(0.8), lambda losses: sum(0.8**d * loss for d, loss in enumerate(losses)))
