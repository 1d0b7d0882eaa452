"""The field's lossy rules against slow twins of their formulas, and the total variation of what they put out."""

from math import exp, log

import pytest
import torch
from support.node_law import CODEBOOK, CODES, ROWS, law_of_chosen, law_of_drawn, total_variation
from support.node_law import random_laws as laws
from torch import Tensor

from lantern.acceptance.cascade import Cascade
from lantern.acceptance.cool_sd import FARTHEST, CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.lantern_pp_released import LanternPPReleased
from lantern.acceptance.lantern_released import LanternReleased
from lantern.acceptance.path_relax import PathRelax
from lantern.acceptance.relaxed import relaxed
from lantern.acceptance.synthetic import Synthetic
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.typical import Typical
from lantern.acceptance.vvs import VVS
from lantern.acceptance.weighted import MOST
from lantern.errors import LanternError
from lantern.types import Site


def site(p: Tensor, depth: int = 1) -> Site:
    return Site(torch.full((len(p),), depth), torch.zeros(len(p), dtype=torch.long), p)


def normalised(masses: list[float], otherwise: list[float]) -> list[float]:
    return [mass / sum(masses) for mass in masses] if sum(masses) > 0 else otherwise


def assert_judges(rule, p: Tensor, q: Tensor | None, slow, depth: int = 1) -> None:
    """slow(p, q, x) on lists -> acceptance, residual; q is a point mass where children are chosen."""
    for code in range(CODES):
        accept, residual = rule.judge(p, q, torch.full((ROWS,), code), site(p, depth))
        for row in range(ROWS):
            draft = [float(code == other) for other in range(CODES)] if q is None else q[row].tolist()
            if draft[code] == 0:
                continue  # cannot be drawn
            chance, rest = slow(p[row].tolist(), draft, code)
            assert accept[row].item() == pytest.approx(chance, abs=1e-12)
            torch.testing.assert_close(residual[row], torch.tensor(rest, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
@pytest.mark.parametrize("rule", [Lantern(CODEBOOK, 4, 0.3), LanternPP(CODEBOOK, 4, 3.0)], ids=lambda rule: rule.name)
def test_lantern_accepts_with_p_tilde_and_recovers_what_q_leaves_of_it(rule, drawn):
    """Catches a residual of p in place of p~."""

    def slow(p, q, x):
        tilde = rule.relax(torch.tensor([p], dtype=torch.float64), torch.tensor([x]))[0].tolist()
        return min(1, tilde[x] / q[x]), normalised([max(a - b, 0) for a, b in zip(tilde, q, strict=True)], tilde)

    assert_judges(rule, laws(5), laws(6) if drawn else None, slow)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
@pytest.mark.parametrize("depth", [1, 3])
def test_cool_sd_keeps_with_the_weight_of_its_level_and_recovers_what_q_f_leaves(depth, drawn):
    """Catches a level counted from 1, a weight that grows, norm(p - q) in place of norm(p - q f)."""
    weight = 1.4 * exp(-0.7 * (depth - 1) - 0.2)

    def slow(p, q, x):
        kept = [b * min(1, weight * a / b) if b > 0 else 0.0 for a, b in zip(p, q, strict=True)]
        return min(1, weight * p[x] / q[x]), normalised([max(a - b, 0) for a, b in zip(p, kept, strict=True)], p)

    assert_judges(CoolSD(1.4, 0.7, 0.2), laws(1), laws(2) if drawn else None, slow, depth)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
def test_entropy_aware_weighs_by_the_entropy_of_the_target(drawn):
    """Catches the entropy of q or of the renormalised p, bits for nats, a rule that tightens where H is high."""

    def slow(p, q, x):
        entropy = -sum(mass * log(mass) for mass in p if mass > 0)
        weight = 1 + 1.5 * (1 - exp(-entropy / 2.0))
        return min(1, weight * p[x] / q[x]), normalised([max(a - b, 0) for a, b in zip(p, q, strict=True)], p)

    assert_judges(EntropyAware(2.0, 1.5), laws(3), laws(4) if drawn else None, slow)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
@pytest.mark.parametrize("g", [1, 2, 3, 4, 6])
def test_gsd_judges_by_the_cluster_nearest_in_rank(g, drawn):
    """Catches a window that leaves the ranking at its ends, filters against another code, a grouped residual; with one
    law for all codes, one ranking of it for several laws."""
    rule = GSD(CODEBOOK, g, 0.15, 2.0)

    def cluster(p, x):
        ranked = sorted(range(CODES), key=lambda code: (-p[code], code))
        first = min(max(ranked.index(x) - g // 2, 0), CODES - g)
        near = [code for code in ranked[first : first + g] if abs(p[code] - p[x]) < 0.15]
        return [code for code in near if float(((CODEBOOK[code] - CODEBOOK[x]) ** 2).sum()) < 2.0]

    def slow(p, q, x):
        ratio = sum(p[code] for code in cluster(p, x)) / sum(q[code] for code in cluster(p, x))
        return min(1, ratio), normalised([max(a - b, 0) for a, b in zip(p, q, strict=True)], p)

    p, q = laws(7), laws(8)
    p[2:8] = p[2:8].mul(8).round().clamp(min=1)  # ties
    p = p / p.sum(1, keepdim=True)
    assert_judges(rule, p, q if drawn else None, slow)
    for law in p:
        found = rule.relax(law.expand(CODES, -1), torch.arange(CODES))
        for x in range(CODES):
            members = cluster(law.tolist(), x)
            expected = law.clone()
            expected[members] = 0
            expected[x] = law[members].sum()
            torch.testing.assert_close(found[x], expected, rtol=0, atol=1e-12)


def test_typical_keeps_what_its_threshold_allows_and_otherwise_draws_from_p():
    """Catches max for min, a threshold that grows with entropy, acceptance that looks at q."""

    def slow(p, q, x):
        entropy = -sum(mass * log(mass) for mass in p if mass > 0)
        return float(p[x] > min(0.2, 0.6 * exp(-entropy))), p

    for q in (laws(12), None):
        assert_judges(Typical(0.2, 0.6), laws(11), q, slow)
    p, x = laws(11), torch.arange(ROWS) % CODES
    relaxed, kept = Typical(0.2, 0.6).relax(p, x), Typical(0.2, 0.6).is_typical(p, x)
    assert (relaxed.gather(1, x[:, None])[kept] == 1).all()
    assert torch.equal(relaxed[~kept], p[~kept])
    assert 0 < kept.sum() < ROWS


def released(k: int, drops_p: bool, budget):
    """The released code's judging: acceptance as in the papers, k + 1 neighbours dropped if x absorbed any."""
    distance = torch.cdist(CODEBOOK, CODEBOOK).fill_diagonal_(torch.inf)

    def slow(p, q, x):
        ranked = distance[x].argsort(stable=True).tolist()[:-1]
        taken, total, absorbed = 0.0, 0.0, 0
        for code in ranked[:k]:
            total += p[code]
            taken, absorbed = (total, absorbed + 1) if total <= budget(p, x) else (taken, absorbed)
        is_point = q[x] == 1 and sum(q) == 1
        dropped = ranked[: k + 1] if absorbed else []
        if is_point:
            rest = [0.0 if code == x or code in dropped else p[code] for code in range(CODES)]
        elif drops_p:
            rest = [max((0.0 if code in dropped else p[code]) - q[code], 0) for code in range(CODES)]
        else:
            rest = [max(p[code] - (0.0 if code in dropped else q[code]), 0) for code in range(CODES)]
        return min(1, (p[x] + taken) / q[x]), normalised(rest, [1 / CODES] * CODES)

    return slow


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "chosen"])
@pytest.mark.parametrize("k", [0, 2, 4])
def test_the_released_rules_have_the_residuals_of_the_released_code(k, drawn):
    """Catches a residual corrected on the way: k for k + 1, the absorbed set for all of B_k, no uniform rescue."""
    p, q = laws(13), laws(14)
    q[0] = q[3]  # a one-hot q is told from a chosen child by the slow twin no more
    q = q if drawn else None
    assert_judges(LanternReleased(CODEBOOK, k, 0.2), p, q, released(k, False, lambda p, x: 0.2))
    assert_judges(LanternPPReleased(CODEBOOK, k, 2.5), p, q, released(k, True, lambda p, x: 1.5 * p[x]))


def test_vvs_commits_q_above_and_p_below_its_skipped_levels():
    """Catches a skip counted one level off and a second sibling that is judged at a skipped level."""
    p, q = laws(15), laws(16)
    for depth, law in ((1, q), (2, q), (3, p), (7, p)):
        for children in (1, 2):
            out = law_of_drawn(VVS(2), p, q, children, depth)
            torch.testing.assert_close(out, law, rtol=0, atol=1e-12)
    chosen = law_of_chosen(VVS(1), p, [4, 2])
    assert (chosen[:, 4] == 1).all()


@pytest.mark.parametrize("children", [1, 2, 3])
@pytest.mark.parametrize(
    "rule",
    [GSD(CODEBOOK, 1, 0.1, 0.1), CoolSD(1.2, 0.7, 0.2), CoolSD(0.6, 0.0, 0.0), EntropyAware(3.0, 0.0), VVS(0)],
    ids=["gsd", "cool_sd", "cool_sd tight", "entropy_aware", "vvs"],
)
def test_a_rule_that_calls_itself_lossless_leaves_p(rule, children):
    """Catches a residual that is exact for weights of 1 alone, and a claim without ground."""
    assert rule.lossless
    p, q = laws(17), laws(18)
    torch.testing.assert_close(law_of_drawn(rule, p, q, children), p, rtol=0, atol=1e-12)
    torch.testing.assert_close(law_of_chosen(rule, p, [2, 0, 5]), p, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "rule", [CoolSD(1.5, 0.7, 0.0), EntropyAware(2.0, 1.0), TvBudget(0.1), VVS(1)], ids=lambda rule: rule.name
)
def test_the_law_of_a_rule_is_what_one_drawn_child_commits(rule):
    """Catches shared noise picking from another law than ratio verification commits."""
    p, q = laws(19), laws(20)
    law = rule.law(p, q, torch.ones(ROWS))
    torch.testing.assert_close(law, law_of_drawn(rule, p, q, 1), rtol=0, atol=1e-12)


def test_weighted_acceptance_moves_the_output_by_w_minus_one_at_most():
    """What Cool-SD's weight bounds for one drawn child: TV <= min(TV(p, q), w - 1); entropy-aware: w <= 1 + beta."""
    p, q = laws(21), laws(22)
    for weight in (1.05, 1.3, 2.0):
        limit = total_variation(p, q).clamp(max=weight - 1) + 1e-12
        assert (total_variation(p, law_of_drawn(CoolSD(weight, 0.7, 0.0), p, q, 1)) <= limit).all()
        assert (total_variation(p, law_of_drawn(EntropyAware(0.5, weight - 1), p, q, 1)) <= limit).all()


@pytest.mark.parametrize("rule", [CoolSD(MOST, 0.0, -FARTHEST), EntropyAware(1.0, MOST)], ids=lambda rule: rule.name)
def test_the_largest_weights_keep_what_is_drafted_where_the_target_has_mass(rule):
    """Catches an infinite weight: times a probability of 0 it is NaN, and the committed law is silently p."""
    p = torch.tensor([[0.5, 0.5, 0.0]])
    q, depth, x = torch.tensor([[0.9, 0.1, 0.0]]), torch.ones(1, dtype=torch.long), torch.tensor([0])
    torch.testing.assert_close(rule.law(p, q, depth), q)
    assert rule.judge(p, q, x, Site(depth, torch.zeros_like(depth), p))[0] == 1


@pytest.mark.parametrize(
    ("rule", "values", "setting"),
    [
        (Lantern, (CODEBOOK, CODES, 0.1), "k=6"),
        (Lantern, (CODEBOOK, 4, float("nan")), "delta=nan"),
        (LanternPP, (CODEBOOK, 4, 0.99), "lam=0.99"),
        (TvBudget, (1.1,), "eps=1.1"),
        (CoolSD, (1e39, 0.7, 0), r"delta=1e\+39"),
        (EntropyAware, (1e-46, 1), "alpha=1e-46"),
        (GSD, (CODEBOOK, 2, 0.1, float("nan")), "max_distance=nan"),
        (Typical, (0.1, float("nan")), "delta=nan"),
        (LanternReleased, (CODEBOOK, 2, 1.5), "delta=1.5"),
        (LanternPPReleased, (CODEBOOK, 2, 0.5), "lam=0.5"),
        (VVS, (-1,), "skip=-1"),
        (Cascade, (-1,), "agreement=-1"),
        (PathRelax, (-0.1,), "delta=-0.1"),
        (Synthetic, ([],), r"rates=\[\]"),
        (Synthetic, ([0.5, 1.5],), "rates="),
        (Synthetic, ("high",), "rates=high"),
    ],
)
def test_settings_out_of_range_are_one_clear_error(rule, values, setting):
    """Catches a silent default or a crash far from the value."""
    with pytest.raises(LanternError, match=f"acceptance.{setting}"):
        rule(*values)


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
