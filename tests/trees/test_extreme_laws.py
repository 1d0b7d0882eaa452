"""Drafters' laws at the ends of float32: cold ones, whose tails vanish beside their peak, and broken ones."""

from dataclasses import replace

import pytest
import torch
from support.toy import ByLikelihood
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.noise import Noise
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree
from lantern.types import PADDING, TreeTopology
from lantern.verification.ratio import Ratio, RatioProposals, judge_all_nodes, judge_reached_nodes

SEEDS = 4000
COLD = torch.tensor([20.0, 9.0, 2.0, 0.0]) / 0.1  # the drafter's logits at temperature 0.1
TARGET = torch.tensor([0.5, 4.5e-5, 0.5 - 4.5e-5, 0.0])


def always(law: Tensor):
    return lambda tokens, parents, depth: law.expand(*tokens.shape, -1)


def test_a_cold_drafter_leaves_the_targets_law():
    """Catches a second sibling without mass beside the first one, of which q / 0 accepts every one."""
    noise, roots = Noise(SEEDS, len(TARGET), 1, num_nodes=3), torch.zeros(SEEDS, dtype=torch.long)
    noise.admit(torch.arange(SEEDS), torch.arange(SEEDS))
    drafted = StaticTree([[0], [1]]).grow(roots, torch.full((SEEDS,), 9), always(COLD), RatioProposals(noise))
    verdict = Ratio()(drafted, TARGET.expand(SEEDS, drafted.tokens.shape[1], -1), Exact(), noise)
    first = drafted.tokens.gather(1, verdict.path[:, 1:2].clamp(min=0))[:, 0]
    made = torch.where(verdict.accepted > 0, first, verdict.next_token)
    share = torch.bincount(made, minlength=4) / SEEDS
    torch.testing.assert_close(share, TARGET, rtol=0, atol=0.03)


@pytest.mark.parametrize("verify", [judge_reached_nodes, judge_all_nodes])
@pytest.mark.parametrize("gap", [80.0, 90.0, 95.0, 100.0])
def test_a_runner_up_of_a_mass_below_the_normal_numbers_is_judged_by_its_law(gap, verify):
    """Catches a second sibling's q divided by the smallest normal number in place of its own sum: SJD-PAC's runners-up
    come from a law of the target, whose tail is not cut as a drafter's is."""
    noise, target = Noise(SEEDS, 4, 1, num_nodes=3), torch.tensor([0.0, 0.119, 0.881, 0.0])
    noise.admit(torch.arange(SEEDS), torch.arange(SEEDS))
    law = torch.tensor([0.0, -gap, -torch.inf, -torch.inf]).softmax(-1)
    siblings = TreeTopology.of((-1, 0, 0), law.device).tree(torch.tensor([[0, 0, 1]]).expand(SEEDS, -1))
    siblings = replace(siblings, draft_probs=law.expand(SEEDS, 3, -1))
    verdict = verify(siblings, target.expand(SEEDS, 3, -1), Exact(), noise)
    made = torch.where(verdict.accepted > 0, 1, verdict.next_token)
    torch.testing.assert_close(torch.bincount(made, minlength=4) / SEEDS, target, rtol=0, atol=0.03)


@pytest.mark.parametrize("tree", [Eagle2Tree(6, 2, 3), DDDTree(6, 3, 3, -9.0, [1, 2])], ids=["eagle2", "ddd"])
def test_a_drafter_that_overflows_loses_its_nodes_and_not_the_root(tree):
    """Catches NaN that is sorted before the root, whose place and entry in the cache another token then takes."""
    roots = torch.tensor([3, 2])

    def broken(tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        law = torch.tensor([0.0, 1.0, 2.0, 3.0]).expand(*tokens.shape, -1).clone()
        law[0, :, 1:] = torch.nan if depth else law[0, :, 1:]
        return law

    grown = tree.grow(roots, torch.tensor([9, 9]), broken, ByLikelihood())
    assert torch.equal(grown.tokens[:, 0], roots)
    assert torch.equal(grown.parents[:, 0], torch.tensor([-1, -1]))
    assert (grown.parents[1] != PADDING).sum() >= (grown.parents[0] != PADDING).sum() > 1
