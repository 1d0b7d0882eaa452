"""The nodes beside a window against choosing them one by one, and what they are for: more tokens a round."""

from math import exp, log1p

import pytest
import torch
from support.tiny_refined import tiny_refined
from support.toy import decode, plain_tokens, tiny_target

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.tv_budget import TvBudget
from lantern.drafters.jacobi.branches import COST_PER_FOLLOWER, SETTLED_FACTOR, Branches
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.errors import LanternError
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.noise import gumbel_argmax, gumbel_topk
from lantern.sampling import Sampling
from lantern.types import PADDING
from lantern.verification.ratio import Ratio
from lantern.verification.shared_law import SharedLaw
from lantern.verification.shared_noise import PICK_SPREAD

LENGTH, CPU = 6, torch.device("cpu")


def slow_nodes(scores: list[list[float]], settled: list[bool], count: int) -> set[tuple[int, ...]]:
    """The best paths beside the window, ranks from the root on, one added at a time among those whose parent stands."""

    def merit(path: tuple[int, ...]) -> float:
        total = 0.0
        for place, rank in enumerate(path):
            surer = SETTLED_FACTOR if settled[place] else 1.0
            gaps = [surer * (score - scores[place][0]) / PICK_SPREAD for score in scores[place]]
            total += gaps[rank] - log1p(sum(map(exp, gaps[1:])))
        return total - COST_PER_FOLLOWER * (len(path) - 1 - next(place for place, rank in enumerate(path) if rank))

    ranks, found = len(scores[0]), set()
    while len(found) < count:
        fresh = {(*[0] * place, rank) for place in range(len(scores)) for rank in range(1, ranks)}
        fresh |= {(*path, 0) for path in found if len(path) < len(scores)}
        found.add(max(fresh - found, key=merit))
    return found


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("count", [1, 4, 9, LENGTH * 3])
def test_the_best_nodes_stand_beside_the_window_under_their_parents(rows, count):
    """Catches a node without its parent, a token or a gap of another place, rank or row, and merits that forget how
    seldom a place is reached."""
    generator = torch.Generator().manual_seed(count)
    branches = Branches(LENGTH, count, 50, CPU)
    for _ in range(20):
        scores = (2 * torch.randn(rows, LENGTH, branches.ranks, generator=generator)).sort(-1, descending=True).values
        codes = torch.stack([torch.randperm(50, generator=generator) for _ in range(rows * LENGTH)])
        codes = codes[:, : branches.ranks].unflatten(0, (rows, LENGTH))
        settled = torch.rand(rows, LENGTH, generator=generator) < 0.5
        tree = branches.tree(torch.full((rows,), 77), torch.full((rows,), 99), codes, scores, settled)
        for row in range(rows):
            wanted = slow_nodes(scores[row].tolist(), settled[row].tolist(), count) | {
                (0,) * depth for depth in range(LENGTH + 1)
            }
            spelt = {tuple(int(codes[row, place, rank]) for place, rank in enumerate(path)) for path in wanted}
            found: list[tuple[int, ...]] = [()]
            for parent, token in zip(tree.parents[row, 1:].tolist(), tree.tokens[row, 1:].tolist(), strict=True):
                found.append((*found[parent], token))
            assert len(set(found)) == len(found) == count + LENGTH + 1
            assert set(found) == spelt
            assert tree.tokens[row, 0] == 77


@pytest.mark.parametrize("rows", [1, 2])
def test_what_an_image_has_no_room_for_is_padding(rows):
    branches = Branches(LENGTH, 8, 50, CPU)
    scores = torch.tensor([0.0, -0.1, -0.2, -0.3]).expand(rows, LENGTH, -1)
    codes = torch.arange(rows * LENGTH * 4).view(rows, LENGTH, 4)
    whole = branches.tree(torch.zeros(rows, dtype=torch.long), torch.full((rows,), 99), codes, scores)
    tokens_left = torch.tensor([3, 99])[:rows]
    tree = branches.tree(torch.zeros(rows, dtype=torch.long), tokens_left, codes, scores)
    assert torch.equal(tree.parents == PADDING, whole.depths >= tokens_left[:, None])
    assert torch.equal(tree.parents.where(tree.parents != PADDING, whole.parents), whole.parents)
    assert (tree.parents[0] == PADDING).any()


@pytest.mark.parametrize("shape", [(3, 7, 4096), (1, 2, 100), (2, 3, 128)], ids=str)
def test_the_leaders_of_a_race_are_the_first_in_order(shape):
    """Catches codes of another block where blocks are searched first."""
    laws = torch.rand(shape)
    weights = torch.rand(laws.shape) + 0.1
    codes, scores = gumbel_topk(laws, weights, 4)
    order = (laws * weights).sort(-1, descending=True)
    assert torch.equal(codes, order.indices[..., :4])
    assert torch.equal(scores, order.values[..., :4].log())
    assert torch.equal(codes[..., 0], gumbel_argmax(laws, weights))


def refined(target: LlamaGenTarget, sampling: Sampling, branches: int) -> RefinedJacobi:
    return tiny_refined(target, sampling, 1, 6, branches)


@pytest.mark.parametrize("branches", [1, 5, 18])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0), Sampling(top_k=2)], ids=["sampled", "greedy", "top_k"])
def test_a_branching_window_decodes_the_tokens_of_plain_decoding(sampling, branches):
    """Catches accepted branches whose cache entries stay where they are, and codes without probability in the way."""
    target = tiny_target()
    alone, beside = (decode(target, refined(target, sampling, count), sampling, 3) for count in (0, branches))
    assert torch.equal(alone.tokens, plain_tokens(sampling))
    assert torch.equal(beside.tokens, plain_tokens(sampling))
    # few may be of no use to so few images
    assert branches == 1 or beside.steps.sum() < alone.steps.sum() + (branches < 18)


def test_a_relaxed_rule_commits_more_along_branches():
    """Catches branches that only the exact rule follows."""
    target = tiny_target()
    exact, relaxed = (
        decode(target, refined(target, Sampling(), 8), Sampling(), 4, rule=rule).steps.sum()
        for rule in (Exact(), LanternPP(target.codebook, 5, 4.0))
    )
    assert relaxed < exact


@pytest.mark.parametrize(("verification", "rule"), [(Ratio(), Exact()), (SharedLaw(), TvBudget(0.1))])
def test_a_verification_that_asks_for_laws_is_rejected_in_one_sentence(verification, rule):
    """Catches guesses judged as if they were draws from a law, and a remedy that is set already."""
    target, sampling = tiny_target(), Sampling()
    for drafter in (refined(target, sampling, 3), refined(target, sampling, 0)):
        with pytest.raises(LanternError, match="verification=shared_noise and a rule without a committed law of its"):
            decode(target, drafter, sampling, 1, verification, rule)


@pytest.mark.parametrize("count", [-1, 3 * LENGTH + 1])
def test_more_branches_than_there_are_are_rejected_by_number(count):
    with pytest.raises(LanternError, match=f"drafter.branches={count}: give 0 to 18 nodes"):
        Branches(LENGTH, count, 50, CPU)
