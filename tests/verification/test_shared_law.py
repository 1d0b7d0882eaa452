"""Shared noise with a committed law: the pick is argmax(log r + G), r follows from the path alone, and what comes out
of the whole loop follows r."""

import pytest
import torch
from support.random_trees import CODES, ROWS, assert_same, random_case
from support.slow_walks import shared_walk
from support.toy import decode, plain_tokens, tiny_eagle, tiny_target

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.exact import Exact
from lantern.acceptance.gsd import GSD
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.typical import Typical
from lantern.acceptance.vvs import VVS
from lantern.drafters.jacobi.jacobi import Jacobi, redraw, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.errors import LanternError
from lantern.laws.tables import TableDrafter, TableTarget, many_images, p_value
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import DraftTree
from lantern.verification import choose_shared_noise
from lantern.verification.shared_law import SharedLaw
from lantern.verification.shared_noise import SharedNoise

CODEBOOK = torch.randn(CODES, 3, generator=torch.Generator().manual_seed(5))
TREE = StaticTree([[0], [1], [0, 0], [1, 0], [0, 0, 0]])
LAWS = [TvBudget(0.2), CoolSD(1.5, 0.7, 0.0), EntropyAware(2.0, 1.0), VVS(1)]


def by_name(rule) -> str:
    return rule.name


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("rule", LAWS, ids=by_name)
def test_the_pick_is_made_from_r_where_children_were_drafted_and_from_p_elsewhere(rule, greedy):
    """Catches the r of another node or depth, and a leaf judged by whatever stands in its row of q."""
    tree, p, noise = random_case(11)
    if greedy:
        noise.gumbel.zero_()
    verdict = SharedLaw()(tree, p, rule, noise)
    for row in range(ROWS):
        parents = tree.parents[row].tolist()
        laws = p[row].clone()
        for node in {parent for parent in parents if parent >= 0}:
            depth = tree.depths[row, node, None] + 1
            laws[node] = rule.law(p[row, node, None], tree.draft_probs[row, node, None], depth)[0]
        tokens, gumbel = tree.tokens[row].tolist(), noise.gumbel[row].tolist()
        assert_same(verdict, row, *shared_walk(tokens, parents, laws.tolist(), lambda law, x: law, gumbel))
    assert not torch.equal(verdict.next_token, SharedNoise()(tree, p, Exact(), noise).next_token)  # it does relax


def tokens_of(rule, tree=TREE, sampling=None, verification=None):
    sampling, target = sampling or Sampling(), tiny_target()
    return decode(
        target, tiny_eagle(target, tree, sampling), sampling, 3, verification or choose_shared_noise(rule), rule
    ).tokens


@pytest.mark.parametrize("rule", [TvBudget(0.0), VVS(0), CoolSD(0.9, 0.7, 0.0), EntropyAware(3.0, 0.0)], ids=by_name)
def test_a_lossless_setting_decodes_the_tokens_of_plain_decoding(rule):
    """Catches a budget of nothing that moves something all the same."""
    assert torch.equal(tokens_of(rule), plain_tokens(Sampling()))
    assert torch.equal(tokens_of(rule, verification=SharedLaw()), plain_tokens(Sampling()))
    greedy = Sampling(temperature=0)
    assert torch.equal(tokens_of(rule, sampling=greedy), plain_tokens(greedy))


@pytest.mark.parametrize("tree", [chain(1), TREE], ids=["chain", "static"])
@pytest.mark.parametrize("rule", [TvBudget(0.15), VVS(1)], ids=by_name)
def test_many_images_of_the_whole_loop_follow_the_committed_law(rule, tree):
    """Catches an r that depends on the noise of its own position: the first round's token, given the first, is r's."""
    sampling = Sampling()
    target = TableTarget(vocab_size=3, num_tokens=3, cfg_scale=2.0)
    drafter = TableDrafter(target, tree, sampling)
    path = torch.zeros(1, 1, dtype=torch.long)
    first = sampling.law(target.forward(path).logits)[0, 0]
    paths = target.child(path, torch.arange(3)).reshape(-1, 1)
    p, q = (sampling.law(model.forward(paths).logits)[:, 0] for model in (target, drafter.model))
    law = first[:, None] * rule.law(p, q, torch.ones(3))
    tokens = many_images(target, drafter, SharedLaw(), sampling, rule)[:, :2]
    assert p_value(tokens, law) > 1e-6
    assert p_value(tokens, first[:, None] * p) < 1e-6  # the test can tell r from p


def test_the_budget_makes_more_drafts_agree():
    """Catches a mixture with the wrong law: towards q is where the drafts are."""
    target, steps = tiny_target(), []
    for rule in (Exact(), TvBudget(0.3)):
        drafter = tiny_eagle(target, TREE, Sampling())
        steps.append(decode(target, drafter, Sampling(), 8, choose_shared_noise(rule), rule).tokens_per_step)
    assert steps[1] > steps[0] + 0.1


def test_each_rule_is_carried_in_its_own_way():
    """Catches a rule with a law picked from p, and a p~ without its map."""
    ways = {TvBudget(0.1): SharedLaw, TvBudget(0.0): SharedNoise, Typical(0.1, 0.3): SharedNoise}
    ways |= {GSD(CODEBOOK, 3, 0.1, 1.0): SharedNoise, Exact(): SharedNoise}
    for rule, way in ways.items():
        assert type(choose_shared_noise(rule)) is way


def test_a_law_without_the_drafts_law_is_one_clear_error():
    """Catches r computed from nothing where a tree did not keep q, and a rule without p~ taken for exact."""
    p = torch.full((1, 2, 4), 0.25)
    tree = DraftTree(torch.zeros(1, 2, dtype=torch.long), torch.tensor([[-1, 0]]))
    with pytest.raises(LanternError, match=r"acceptance=tv_budget with verification=shared_noise needs the draft law"):
        SharedLaw()(tree, p, TvBudget(0.1), None)
    with pytest.raises(LanternError, match=r"needs the draft law, which this tree does not keep; use a static tree"):
        tokens_of(TvBudget(0.1), Eagle2Tree(4, 2, 2))

    class Plain:
        name, lossless = "plain", False

    noise = random_case(0)[2]
    with pytest.raises(LanternError, match=r"acceptance=plain names none; use verification=ratio"):
        SharedNoise()(*random_case(0)[:2], Plain(), noise)


@pytest.mark.parametrize("redraw", [redraw_coupled, redraw])
def test_a_window_for_a_rule_with_a_law_of_its_own_is_one_clear_error(redraw):
    """Catches an AttributeError in the middle of decoding."""
    target, rule, sampling = tiny_target(), TvBudget(0.1), Sampling()
    drafter = Jacobi(target, 3, Nearest(), redraw, sampling)
    with pytest.raises(LanternError, match=r"no window to judge .*, or verification=ratio above temperature 0"):
        decode(target, drafter, sampling, 2, choose_shared_noise(rule), rule)
