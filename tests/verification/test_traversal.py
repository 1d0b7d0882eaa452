"""Traversal verification: its law by enumeration, its walk against that of one row at a time, and what it gains."""

import pytest
from support.random_trees import assert_same, random_case
from support.tables import deviation, mean_accepted
from support.traversal import Traversal as SlowTraversal

import lantern
from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.tv_budget import TvBudget
from lantern.errors import LanternError
from lantern.laws.tables import TableDrafter, TableTarget
from lantern.sampling import Sampling
from lantern.trees.static import StaticTree, chain
from lantern.types import DraftTree
from lantern.verification import Ratio, traversal
from lantern.verification.block import Block
from lantern.verification.traversal import Traversal

BRANCHES = StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])


def test_the_law_of_whole_images_is_kept_on_every_tree_window_and_sampling():
    """Catches any bias of weights, coins, residual or bonus token, and a window redrawn as ratio redraws it."""
    assert lantern.check_law(verification=Traversal()).lossless


@pytest.mark.parametrize("cut", [{}, {"top_k": 2}], ids=["none", "top_k"])
def test_one_round_on_a_deep_tree_keeps_the_joint_law(cut):
    """Catches a weight of another level, and a shape that depends on cousins judged before: to 1e-9."""
    target, sampling = TableTarget(vocab_size=3, num_tokens=5, cfg_scale=2.0), Sampling(**cut)
    assert deviation(target, TableDrafter(target, BRANCHES, sampling), Traversal(), Exact(), sampling) < 1e-9


def test_a_walk_that_leaves_the_weights_of_a_node_after_a_rejection_is_caught(monkeypatch):
    """The tests above can fail: the residual of ratio, with q as it was."""
    monkeypatch.setattr(traversal, "without", lambda q, x: q)
    target, sampling = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0), Sampling()
    assert deviation(target, TableDrafter(target, BRANCHES, sampling), Traversal(), Exact(), sampling) > 1e-3


@pytest.mark.parametrize("chosen", [False, True], ids=["drawn", "chosen"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_agrees_with_the_walk_of_one_row_at_a_time(seed, chosen):
    """Catches rows that disturb one another, and padding that is judged."""
    tree, p, noise = random_case(seed)
    p = p if chosen else 0.5 * p + 0.5 * tree.draft_probs  # else hardly anything is kept
    tree = DraftTree(tree.tokens, tree.parents, None if chosen else tree.draft_probs)
    found, slow = Traversal()(tree, p, Exact(), noise), SlowTraversal()(tree, p, Exact(), noise)
    for row in range(len(p)):
        path = [node for node in slow.path[row].tolist() if node >= 0]
        assert_same(found, row, path, int(slow.next_token[row]))
    assert found.accepted.unique().numel() > 2


def test_it_accepts_more_than_judging_siblings_from_the_root():
    """The paper's claim: longer than ratio on a tree."""
    tree = [-1, 0, 0, 1, 2]
    gains = [mean_accepted(Traversal(), seed, tree, 2) - mean_accepted(Ratio(), seed, tree, 2) for seed in range(4)]
    assert min(gains) >= -1e-9
    assert max(gains) > 0.01


def test_on_a_chain_it_accepts_what_block_verification_does():
    """Catches a traversal that is not block verification's generalisation."""
    line = [-1, 0, 1, 2]
    assert mean_accepted(Traversal(), 0, line) == pytest.approx(mean_accepted(Block(), 0, line), abs=1e-12)


def test_rules_with_a_committed_law_are_committed_exactly_and_others_refused():
    """Catches a law that only the first sibling is judged by, and a relaxation that is silently ignored."""
    target, sampling = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0), Sampling()
    drafter = TableDrafter(target, chain(2), sampling)
    found = [deviation(target, drafter, judge, TvBudget(0.1), sampling) for judge in (Traversal(), Ratio())]
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    rule = Lantern(target.codebook, 2, 0.1)
    with pytest.raises(LanternError, match="acceptance=lantern judges single tokens"):
        deviation(target, drafter, Traversal(), rule, sampling)
