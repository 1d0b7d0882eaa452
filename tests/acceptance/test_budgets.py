"""tv_budget and transport keep their promise on the law that comes out: one or several children, drawn or chosen."""

import pytest
import torch
from support.node_law import CODEBOOK, CODES, ROWS, law_of_chosen, law_of_drawn, total_variation, wasserstein
from support.node_law import random_laws as laws

from lantern.acceptance.relaxed import relaxed
from lantern.acceptance.transport import Transport
from lantern.acceptance.tv_budget import TvBudget

EPSILONS = (0.0, 0.03, 0.2, 1.0)


def slow_transport(p: list[float], q: list[float], near: list[list[int]], cost: list[list[float]], eps: float):
    """One law at a time in plain Python: what each code keeps, rank by rank."""
    r, left = list(p), eps
    for rank in range(len(near[0])):
        asks = [(code, near[code][rank], r[code] - q[code]) for code in range(len(p)) if r[code] > q[code]]
        asks = [(code, to, mass) for code, to, mass in asks if q[to] > r[to]]
        moves = []
        for code, to, mass in asks:
            wanted = sum(other for _, receiver, other in asks if receiver == to)
            moves.append((code, to, mass * min(1, (q[to] - r[to]) / wanted)))
        price = sum(mass * cost[code][rank] for code, _, mass in moves)
        share = 1 if price <= left else left / price
        for code, to, mass in moves:
            r[code] -= share * mass
            r[to] += share * mass
        left = max(left - share * price, 0)
    return r


@pytest.mark.parametrize("children", [1, 2, 3])
@pytest.mark.parametrize("eps", EPSILONS)
def test_the_output_of_tv_budget_is_r_and_within_eps_of_p(eps, children):
    """Catches a budget spent anew at every sibling, a residual of p in place of r, a weight that overshoots."""
    p, q, rule = laws(1), laws(2), TvBudget(eps)
    out = law_of_drawn(rule, p, q, children)
    torch.testing.assert_close(out, rule.law(p, q, None), rtol=0, atol=1e-12)
    assert (total_variation(p, out) <= eps + 1e-12).all()
    if eps == 0:
        torch.testing.assert_close(out, p, rtol=0, atol=1e-12)
        assert rule.lossless


@pytest.mark.parametrize("eps", EPSILONS)
def test_one_drawn_child_is_accepted_as_often_as_any_rule_within_eps_may(eps):
    """Catches a mixture that spends less than its budget: acceptance is 1 - TV(p, q) + eps, 1 at most."""
    p, q, rule = laws(3), laws(4), TvBudget(eps)
    accept = torch.zeros(ROWS, dtype=torch.float64)
    for code in range(CODES):
        accept += q[:, code] * relaxed(rule.law(p, q, None), q, torch.full((ROWS,), code))[0]
    torch.testing.assert_close(accept, (1 - total_variation(p, q) + eps).clamp(max=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [[0], [3, 1], [2, 4, 0]])
@pytest.mark.parametrize("eps", EPSILONS)
def test_chosen_children_stay_within_the_budget(eps, tokens):
    """Catches q taken for something else than the point mass on the first chosen child."""
    p = laws(6)
    out = law_of_chosen(TvBudget(eps), p, tokens)
    assert (total_variation(p, out) <= eps + 1e-12).all()
    torch.testing.assert_close(out[:, tokens[0]], (p[:, tokens[0]] + eps).clamp(max=1), rtol=0, atol=1e-12)
    moved = law_of_chosen(Transport(CODEBOOK, CODES - 1, eps), p, tokens)
    assert max(wasserstein(a, b, CODEBOOK) for a, b in zip(p, moved, strict=True)) <= eps + 1e-9


@pytest.mark.parametrize("children", [1, 2, 3])
@pytest.mark.parametrize(("k", "eps"), [(1, 0.1), (3, 0.02), (3, 0.1), (5, 0.4)])
def test_the_output_of_transport_is_within_eps_of_p_in_wasserstein_distance(k, eps, children):
    """Catches a budget in the wrong unit, spent a rank or a sibling, and mass sent twice."""
    p, q, rule = laws(7), laws(8), Transport(CODEBOOK, k, eps)
    out = law_of_drawn(rule, p, q, children)
    torch.testing.assert_close(out, rule.law(p, q, None), rtol=0, atol=1e-12)
    spent = [wasserstein(a, b, CODEBOOK) for a, b in zip(p, out, strict=True)]
    assert max(spent) <= eps + 1e-9
    assert max(spent) > eps / 2  # the budget is used
    assert ((out - p) * (q - p) >= -1e-12).all()  # towards q
    assert ((out - p).abs() <= (q - p).abs() + 1e-12).all()  # and not past it


@pytest.mark.parametrize("eps", [0.0, 0.05, 0.3, 50.0])
@pytest.mark.parametrize("k", [1, 4, 11])
def test_transport_agrees_with_the_plan_made_code_by_code(k, eps):
    """Catches senders that collide at a receiver, a neighbour of another code, rows that share a budget."""
    codebook = torch.randn(12, 2, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    rule, p, q = Transport(codebook, k, eps), laws(11, 12), laws(12, 12)
    distance = torch.cdist(codebook, codebook).masked_fill(torch.eye(12, dtype=torch.bool), torch.inf)
    near = distance.argsort(dim=1)[:, :k]
    cost = distance.gather(1, near) / distance.amin(1).mean()
    r = rule.law(p, q, None)
    torch.testing.assert_close(r.sum(1), torch.ones(ROWS, dtype=torch.float64), rtol=0, atol=1e-12)
    for row in range(ROWS):
        slow = slow_transport(p[row].tolist(), q[row].tolist(), near.tolist(), cost.tolist(), eps)
        torch.testing.assert_close(r[row], torch.tensor(slow, dtype=torch.float64), rtol=0, atol=1e-12)
    if k == 11 and eps == 50:
        torch.testing.assert_close(r, q, rtol=0, atol=1e-12)  # everything can be sent everywhere
