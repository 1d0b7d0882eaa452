"""Ratio and shared-noise verification against their slow twins, on random batches of random trees."""

import pytest
import torch
from support.random_trees import CODES, ROWS, FixedNoise, assert_same, random_case, widest
from support.slow_walks import absorb, ratio_walk, shared_walk

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.types import DraftTree
from lantern.verification.ratio import Ratio, judge_all_nodes, judge_reached_nodes
from lantern.verification.shared_noise import SharedNoise

CODEBOOK = torch.randn(CODES, 3, generator=torch.Generator().manual_seed(5))
RULES = [Exact(), Lantern(CODEBOOK, 3, 0.25), LanternPP(CODEBOOK, 3, 2.5)]


def relaxation(rule):
    """The rule's p -> p~ for one row in plain Python."""
    if isinstance(rule, Exact):
        return lambda p, x: p
    near = rule.neighbours.tolist()
    if isinstance(rule, Lantern):
        return lambda p, x: absorb(p, x, near[x], rule.delta)
    return lambda p, x: absorb(p, x, near[x], (rule.lam - 1) * p[x])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("chosen", [False, True], ids=["drawn", "chosen"])
@pytest.mark.parametrize("way", [judge_reached_nodes, judge_all_nodes], ids=["judge_reached_nodes", "everywhere"])
@pytest.mark.parametrize("seed", [0, 1])
def test_ratio_agrees_with_the_walk_of_one_row_in_plain_python(rule, chosen, way, seed):
    """Catches rows that disturb one another, a wrong sibling order, laws of another node, padding that is judged; with
    seed 1 the width of the trees is known."""
    tree, p, noise = random_case(seed)
    laws, width = None if chosen else tree.draft_probs, widest(tree) if seed == 1 else None
    tree = DraftTree(tree.tokens, tree.parents, laws, width=width)
    verdict = way(tree, p, rule, noise)
    for row in range(ROWS):
        q = None if chosen else tree.draft_probs[row].tolist()
        args = tree.tokens[row].tolist(), tree.parents[row].tolist(), q, p[row].tolist()
        walk = ratio_walk(*args, relaxation(rule), noise.coins[row].tolist(), noise.gumbel[row, 0].tolist())
        assert_same(verdict, row, *walk)
    assert verdict.accepted.unique().numel() > 2  # rows advance unevenly


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_shared_noise_follows_the_longest_picked_path(rule, duplicates, greedy):
    """Catches a walk that stops at the first of two equal siblings, prefers a later one, or follows padding."""
    tree, p, noise = random_case(11, duplicates)
    if greedy:
        noise.gumbel.zero_()
    verdict = SharedNoise()(tree, p, rule, noise)
    for row in range(ROWS):
        args = tree.tokens[row].tolist(), tree.parents[row].tolist(), p[row].tolist()
        assert_same(verdict, row, *shared_walk(*args, relaxation(rule), noise.gumbel[row].tolist()))
    assert verdict.accepted.max() > 1


def test_a_one_hot_draft_law_is_judged_by_p_alone():
    """Catches a division by a vanishing q and a residual that keeps the rejected token."""
    q = torch.eye(4, dtype=torch.float64)[[2, 0]][None]
    p = torch.tensor([[[0.5, 0.0, 0.25, 0.25], [1.0, 0, 0, 0]]], dtype=torch.float64)
    tree = DraftTree(torch.tensor([[3, 2]]), torch.tensor([[-1, 0]]), q)
    for coin, accepted in ((0.24, 1), (0.26, 0)):
        noise = FixedNoise(torch.full((1, 2), coin, dtype=torch.float64), torch.zeros(1, 2, 4, dtype=torch.float64))
        verdict = Ratio()(tree, p, Exact(), noise)
        assert (int(verdict.accepted), int(verdict.next_token)) == (accepted, 0)
    rejected = Exact().judge(p[:, 0], q[:, 0], torch.tensor([2]), None)[1]
    torch.testing.assert_close(rejected, torch.tensor([[2 / 3, 0, 0, 1 / 3]], dtype=torch.float64))


def test_a_draft_law_equal_to_the_target_law_is_never_rejected():
    """Catches a coin that can be 1 and a residual without mass that turns into NaN."""
    p = torch.tensor([[0.1, 0.2, 0.7]], dtype=torch.float64)
    for x in range(3):
        accept, residual = Exact().judge(p, p, torch.tensor([x]), None)
        assert accept.item() == 1
        assert torch.equal(residual, p)


class RecordingRule(Exact):
    """Records the sites at which it is asked."""

    def __init__(self) -> None:
        self.sites = []

    def judge(self, p, q, x, site):
        self.sites.append((int(site.depth), int(site.rank), site.law[0].tolist()))
        return super().judge(p, q, x, site)


@pytest.mark.parametrize("chosen", [False, True], ids=["drawn", "chosen"])
def test_a_rule_receives_the_site_it_judges(chosen):
    """Catches a rank that is not reset below, a depth off by one, and a law that already lost its rejected siblings."""
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.rand(1, 5, 4, generator=generator, dtype=torch.float64).softmax(-1) for _ in range(2))
    parents = torch.tensor([[-1, 0, 0, 2, 2]])
    tree = DraftTree(torch.tensor([[0, 1, 2, 3, 0]]), parents, None if chosen else q)
    coins = torch.tensor([[0.0, 0.999, 0.0, 0.999, 0.0]], dtype=torch.float64)
    p[0, :, :] += 0.1 * torch.eye(4, dtype=torch.float64)[[2, 2, 0, 0, 0]]  # node 1 can be rejected, and so can node 3
    p = p / p.sum(-1, keepdim=True)
    q[0, 0], q[0, 2] = torch.tensor([[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]], dtype=torch.float64)
    rule = RecordingRule()
    Ratio()(tree, p, rule, FixedNoise(coins, torch.zeros(1, 5, 4, dtype=torch.float64)))
    root, below = p[0, 0].tolist(), p[0, 2].tolist()
    assert rule.sites == [(1, 0, root), (1, 1, root), (2, 0, below), (2, 1, below)]
