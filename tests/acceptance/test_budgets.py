"""tv_budget keeps its promise on the law that comes out: one or several children, drawn or chosen."""

import pytest
import torch
from support.node_law import CODES, ROWS, law_of_chosen, law_of_drawn, total_variation
from support.node_law import random_laws as laws

from lantern.acceptance.relaxed import relaxed
from lantern.acceptance.tv_budget import TvBudget

EPSILONS = (0.0, 0.03, 0.2, 1.0)


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
