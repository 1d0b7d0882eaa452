"""Expected code distance against a plan made code by code, and the linear programme."""

import pytest
import torch
from support.node_law import wasserstein
from torch import Tensor

from lantern.metrics.output_tv import CodeDistance, total_variation

CODES = 6
CODEBOOK = torch.randn(CODES, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def laws(seed: int, rows: int = 20, codes: int = CODES) -> Tensor:
    logits = torch.randn(rows, codes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return logits.masked_fill(logits < -1.2, -torch.inf).softmax(-1)


def units(codebook: Tensor) -> Tensor:
    """[V, V] distances, in mean distances of nearest codes."""
    distance = torch.cdist(codebook, codebook)
    return distance / distance.masked_fill(torch.eye(len(codebook), dtype=torch.bool), torch.inf).amin(1).mean()


def slow_plan(p: list[float], r: list[float], far: list[list[float]], ranks: int) -> float:
    """One pair of laws in plain Python."""
    size, total = len(p), 0.0
    near = [sorted({*range(size)} - {code}, key=lambda i, code=code: far[code][i]) for code in range(size)]
    has, wants = [max(a - b, 0) for a, b in zip(p, r, strict=True)], [max(b - a, 0) for a, b in zip(p, r, strict=True)]
    for rank in range(ranks):
        asks = [(code, near[code][rank]) for code in range(size) if has[code] > 0]
        moves = []
        for code, to in asks:
            wanted = sum(has[other] for other, receiver in asks if receiver == to)
            moves.append((code, to, has[code] * min(1, wants[to] / wanted)))
        for code, to, mass in moves:
            has[code] -= mass
            wants[to] -= mass
            total += mass * far[code][to]
    left = sum(has)
    return total + sum(has[i] * wants[j] / left * far[i][j] for i in range(size) for j in range(size) if left > 1e-15)


@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_it_is_the_cost_of_the_plan_made_code_by_code(ranks):
    """Catches senders that collide at a receiver, a distance of another pair, and mass that is left behind."""
    measure, far = CodeDistance(CODEBOOK, ranks), units(CODEBOOK).tolist()
    for p, r in zip(laws(1), laws(2), strict=True):
        assert measure.of_laws(p, r) == pytest.approx(slow_plan(p.tolist(), r.tolist(), far, ranks), abs=1e-9)


@pytest.mark.parametrize("codes", [6, 12])
def test_it_bounds_the_wasserstein_distance_closely_and_moves_no_more_than_must(codes):
    """Between the least cost of all plans and that of replacing tokens without regard to distance."""
    codebook = torch.randn(codes, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    measure, far, sums = CodeDistance(codebook), units(codebook), torch.zeros(3, dtype=torch.float64)
    for p, r in zip(laws(3, codes=codes), laws(4, codes=codes), strict=True):
        found, least = measure.of_laws(p, r), wasserstein(p, r, codebook)
        surplus, lack = (p - r).clamp(min=0), (r - p).clamp(min=0)
        assert found >= least - 1e-9
        sums += torch.tensor([least, found, float(surplus @ far @ lack / surplus.sum())])
    least, found, careless = sums.tolist()
    assert least <= found < 1.15 * least < 1.15 * careless
    assert found < 0.95 * careless


def test_equal_laws_and_equal_codes_are_no_distance_apart():
    p, r = laws(1)[:2]
    assert CodeDistance(CODEBOOK).of_laws(p, p) == 0
    assert CodeDistance(torch.ones(CODES, 2)).of_laws(p, r) == 0
    assert total_variation(p, r) > 0


def test_tokens_are_as_far_apart_as_their_codes():
    one, other = torch.tensor([[0, 3], [5, 5]]), torch.tensor([[1, 3], [2, 5]])
    torch.testing.assert_close(CodeDistance(CODEBOOK).of_tokens(one, other), units(CODEBOOK)[one, other])
