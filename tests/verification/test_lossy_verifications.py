"""PathSpec's longest path and SJD-SV's runs: against slow twins, and what they do to the law, by enumeration."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from support.random_trees import random_case
from support.small_laws import found
from support.toy import decode, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.drafters.jacobi.jacobi import Jacobi, redraw
from lantern.drafters.jacobi.paths import JacobiPaths
from lantern.drafters.jacobi.starts import Nearest
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.trees.static import StaticTree, chain
from lantern.types import DraftTree
from lantern.verification.block import Block
from lantern.verification.longest_path import LongestPath
from lantern.verification.runs import Runs

PATHS = StaticTree([[0], [1], [0, 0], [1, 0]])
SJD = partial(Jacobi, length=2, start=Nearest(), redraw=redraw)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_longest_path_agrees_with_every_path_judged_alone(seed):
    """Catches siblings judged by what is left of q, a coin behind a rejection, and a later path of the same length."""
    tree, p, noise = random_case(seed)
    q = tree.draft_probs
    p = 0.5 * p + 0.5 * q
    verdict = LongestPath()(tree, p, Exact(), noise)
    for row in range(len(p)):
        tokens, parents = tree.tokens[row].tolist(), tree.parents[row].tolist()
        paths = {0: [0]}
        for node in range(1, len(tokens)):
            above = parents[node]
            if above in paths and noise.coins[row, node] * q[row, above, tokens[node]] < p[row, above, tokens[node]]:
                paths[node] = [*paths[above], node]
        best = max(paths.values(), key=lambda path: (len(path), -path[-1]))
        rest = (p[row, best[-1]] - q[row, best[-1]]).clamp(min=0)
        law = rest / rest.sum() if best[-1] in parents and rest.sum() > 0 else p[row, best[-1]]
        assert [node for node in verdict.path[row].tolist() if node >= 0] == best
        assert verdict.next_token[row] == (law.log() + noise.gumbel[row, 0]).argmax()


def test_the_longest_of_several_paths_is_biased_and_a_single_path_is_not():
    """PathSpec's "without relaxation" changes the law; the same paths judged by ratio keep it: test_paths."""
    assert found(verification=LongestPath(), tree=chain(2)) < 1e-9
    assert found(verification=LongestPath(), tree=PATHS) > 0.01
    assert found(verification=LongestPath(), drafter=partial(JacobiPaths, length=2, paths=2)) > 0.01


def slow_runs(own: list[float], drafted: list[float], share: float) -> list[float]:
    """P(at least k tokens are kept) for k = 1 … M, of one window."""
    starts = [0, *(i for i in range(1, len(own)) if own[i] < own[i - 1]), len(own)]
    chances, reached = [], 1.0
    for begin, end in pairwise(starts):
        judged = max(i for i in range(begin, end) if sum(own[i:end]) >= share * sum(own[begin:end]))
        ratios, product = [], 1.0
        for i in range(judged, end):
            product *= own[i] / drafted[i]
            ratios.append(min(1, product))
        chances += [reached] * (judged - begin) + [reached * max(ratios[k:]) for k in range(len(ratios))]
        reached = chances[-1]
    return chances


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_runs_keep_as_much_as_one_number_a_run_allows(share):
    """Catches a run cut at the wrong place, a ratio of unjudged tokens, and a fallback that stops too early."""
    generator = torch.Generator().manual_seed(1)
    p, q = (torch.rand(40, 6, 5, generator=generator, dtype=torch.float64).softmax(-1) ** 4 for _ in range(2))
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    tokens = torch.randint(5, (40, 6), generator=generator)
    tree = DraftTree(tokens, torch.arange(-1, 5).expand(40, -1), q)
    kept = Runs(share).chances(tree, p, q).cumprod(1)
    for row in range(40):
        own, drafted = (laws[row, range(5), tokens[row, 1:]].tolist() for laws in (p, q))
        assert kept[row].tolist() == pytest.approx(slow_runs(own, drafted, share), abs=1e-12)


def test_runs_change_the_law_and_their_exact_twin_does_not():
    """Catches a row of SJD-SV that is called lossless; the bias is there with the whole run judged, too."""
    assert found(verification=Block(), drafter=SJD) < 1e-9
    assert found(verification=Runs(1.0), drafter=SJD) > 0.01
    assert found(verification=Runs(0.8), drafter=SJD) > 0.01


def test_bad_settings_and_parts_that_do_not_go_together_are_one_clear_error():
    """Catches a share beyond a run, siblings taken for a window, a relaxation that is silently ignored."""
    for share in (0, 1.1, float("nan")):
        with pytest.raises(LanternError, match=f"verification.share={share}"):
            Runs(share)
    with pytest.raises(LanternError, match="verification=runs judges chains"):
        found(verification=Runs(0.8), tree=PATHS)
    with pytest.raises(LanternError, match="acceptance=exact"):
        found(verification=Runs(0.8), drafter=SJD, rule=partial(Lantern, k=1, delta=0.2))


def test_runs_judge_a_drafted_chain_to_the_image_s_last_token():
    """Catches the last round, in which nothing is drafted and no law is there, taken for a chain without laws."""
    target, sampling = tiny_target(), Sampling()
    made = decode(target, tiny_eagle(target, chain(2), sampling), sampling, 1, Runs(0.8))
    assert made.tokens.shape == (8, target.num_tokens)
