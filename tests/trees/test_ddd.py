"""Dynamic depth: the level at which a row's tree ends, against a beam in plain Python."""

from math import exp, inf, log

import pytest
import torch
from support.toy import ByLikelihood
from support.trees import PathLaws, brute_force_beam, paths_of

from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree

ROOTS = torch.arange(6)


def slow_end(laws: PathLaws, root: int, tree: DDDTree, tokens_left: int) -> int:
    """Levels grown by a beam until the log of its total probability falls below tau."""
    beam, most = [(0.0, (root,))], min(tree.depth, tokens_left - 1)
    for level in range(1, most + 1):
        grown = []
        for score, path in beam:
            law = laws.law(path)
            best = sorted(range(laws.codes), key=lambda code: -float(law[code]))[: tree.width]
            grown += [(score + log(law[code]), (*path, code)) for code in best if law[code] > 0]
        beam = sorted(grown, reverse=True)[: tree.width]
        if level in tree.checks and log(sum(exp(score) for score, _ in beam)) < tree.tau:
            return level
    return most


@pytest.mark.parametrize("checks", [[1, 2, 3, 4], [2, 4], []])
@pytest.mark.parametrize("tau", [-0.3, -0.8, -1.5])
def test_a_tree_ends_at_the_first_check_that_it_fails(checks, tau):
    """Catches confidence of the wrong level or of another row, and rows that go on because others do."""
    tree, laws = DDDTree(18, 5, 4, tau, checks), PathLaws(codes=13, seed=7)
    tokens_left = torch.tensor([99] * 4 + [3, 1])
    grown = tree.grow(ROOTS, tokens_left, laws, ByLikelihood())
    for row, root in enumerate(ROOTS.tolist()):
        end = slow_end(laws, root, tree, int(tokens_left[row]))
        assert set(paths_of(grown, row)) == brute_force_beam(laws, root, 18, end, 4)


def test_trees_end_at_different_levels_and_no_needless_drafter_forward_runs():
    """Catches a tau without effect, and drafter forwards after the last row has ended."""
    tree, laws = DDDTree(18, 5, 4, -0.8, [1, 2, 3, 4]), PathLaws(codes=13, seed=7)
    ends, ran = [slow_end(laws, root, tree, 99) for root in ROOTS.tolist()], []

    def watched(tokens, parents, depth):
        ran.append(depth)
        return laws(tokens, parents, depth)

    tree.grow(ROOTS, torch.full((6,), 99), watched, ByLikelihood())
    assert len(set(ends)) > 1
    assert max(ends) < 5
    assert len(ran) == max(ends)


def test_without_a_threshold_it_is_eagle2():
    """Catches a beam that differs from EAGLE-2's in anything but its end."""
    laws, tokens_left = PathLaws(codes=13, seed=8), torch.tensor([99, 99, 4, 99, 2, 99])
    ours = DDDTree(20, 4, 5, -inf, [1, 2, 3]).grow(ROOTS, tokens_left, laws, ByLikelihood())
    theirs = Eagle2Tree(20, 4, 5).grow(ROOTS, tokens_left, laws, ByLikelihood())
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.equal(ours.parents, theirs.parents)
