"""Block verification of chains: its law by enumeration, its walk against plain Python, what it gains and rejects."""

import pytest
import torch
from support.random_trees import CODES, NODES, ROWS, FixedNoise, assert_same, random_laws
from support.slow_walks import argmax
from support.tables import deviation, law_of_one_round, mean_accepted

from lantern.acceptance.exact import Exact
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.tv_budget import TvBudget
from lantern.errors import LanternError
from lantern.laws.tables import TableDrafter, TableTarget, sequence_law
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import chain
from lantern.types import PADDING, DraftTree
from lantern.verification import block
from lantern.verification.block import Block
from lantern.verification.ratio import Ratio

CODEBOOK = torch.randn(CODES, 3, generator=torch.Generator().manual_seed(5))
CUTS = {"none": {}, "top_k": {"top_k": 2}, "top_p": {"top_p": 0.75}}


def slow_block(tokens, q, p, coins, gumbel) -> tuple[list[int], int]:
    """Algorithm 2 of 2403.10444 on lists; tokens, the root's included, end where the chain does."""
    gamma, weight, weights = len(tokens) - 1, 1.0, [1.0]
    for node in range(1, gamma + 1):
        weight = min(1.0, weight * p[node - 1][tokens[node]] / q[node - 1][tokens[node]])
        weights.append(weight)
    laws = zip(weights, p, q, strict=False)
    rests = [[max(w * a - b, 0.0) for a, b in zip(pi, qi, strict=True)] for w, pi, qi in laws]
    kept = 0
    for node in range(1, gamma + 1):
        total = sum(rests[node]) + 1 - weights[node]
        chance = weights[node] if node == gamma else sum(rests[node]) / total if total > 0 else 1.0
        if coins[node] < chance:
            kept = node
    law = rests[kept] if kept < gamma and sum(rests[kept]) > 0 else p[kept]
    picks = [torch.tensor(mass).log().item() + g if mass > 0 else -1e9 for mass, g in zip(law, gumbel, strict=True)]
    return list(range(kept + 1)), argmax(picks)


def random_chains(seed: int, chosen: bool) -> tuple[DraftTree, torch.Tensor, FixedNoise]:
    """Chains of uneven length; p equals q at some nodes."""
    generator = torch.Generator().manual_seed(seed)
    q, p = random_laws(generator, ROWS, NODES), random_laws(generator, ROWS, NODES)
    p = torch.where(torch.rand(ROWS, NODES, 1, generator=generator) < 0.3, q, p)
    p = 0.5 * p + 0.5 * q  # else hardly anything is kept
    drawn = torch.multinomial(q.flatten(0, 1), 1, generator=generator).view(ROWS, NODES)
    tokens = drawn.roll(1, 1)
    parents = torch.arange(-1, NODES - 1).repeat(ROWS, 1)
    length = torch.randint(1, NODES + 1, (ROWS, 1), generator=generator)
    parents[torch.arange(NODES) >= length] = PADDING
    coins = torch.rand(ROWS, NODES, generator=generator, dtype=torch.float64)
    uniform = torch.rand(ROWS, NODES, CODES, generator=generator, dtype=torch.float64)
    noise = FixedNoise(coins, -(-uniform.log()).log())
    return DraftTree(tokens, parents, None if chosen else q), p, noise


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("cfg_scale", [2.0, 1.0])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_block_verification_leaves_the_joint_law_of_the_target_unchanged(length, cfg_scale, cut):
    """Catches any bias of weights, coins, residual or bonus token, to 1e-9; a chain of 3 is too long."""
    sampling = Sampling(cfg_scale=cfg_scale, **CUTS[cut])
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=cfg_scale)
    drafter = TableDrafter(target, chain(length), sampling)
    assert deviation(target, drafter, Block(), Exact(), sampling) < 1e-9


def test_a_chosen_chain_is_lossless_too():
    """Catches a chosen token weighed by the drafter's law; EAGLE-2 of width 1 chooses a chain."""
    sampling, target = Sampling(), TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0)
    drafter = TableDrafter(target, Eagle2Tree(total=2, depth=2, width=1), sampling)
    assert deviation(target, drafter, Block(), Exact(), sampling) < 1e-9


def residual_of_ratio(weight, rest, last, noise):
    """Keeps the chain as far as every coin so far fell: token by token, with the chances of the block."""
    below = rest + 1 - weight
    chance = torch.where(below > 0, rest / below, 1)
    kept, alive = torch.zeros_like(last), torch.ones_like(last, dtype=torch.bool)
    for node in range(1, weight.shape[1]):
        judged = node <= last
        here = torch.where(last == node, weight[:, node], chance[:, node])
        alive = alive & judged & noise.accepts(here, torch.where(judged, node, 0))
        kept = torch.where(alive, node, kept)
    return kept


def test_a_block_that_stops_at_the_first_rejection_is_caught(monkeypatch):
    sampling, target = Sampling(), TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0)
    monkeypatch.setattr(block, "_longest", residual_of_ratio)
    assert deviation(target, TableDrafter(target, chain(2), sampling), Block(), Exact(), sampling) > 1e-3


@pytest.mark.parametrize("chosen", [False, True], ids=["drawn", "chosen"])
@pytest.mark.parametrize("seed", [0, 1])
def test_block_agrees_with_the_walk_of_one_row_in_plain_python(seed, chosen):
    """Catches rows that disturb one another, padding that is judged, a weight of another node."""
    tree, p, noise = random_chains(seed, chosen)
    verdict = Block()(tree, p, Exact(), noise)
    lengths = (~tree.is_padding).sum(1).tolist()
    for row, length in enumerate(lengths):
        tokens = tree.tokens[row, :length].tolist()
        point = torch.eye(CODES, dtype=torch.float64)[tree.tokens[row].roll(-1)]
        q = (point if chosen else tree.draft_probs[row]).tolist()
        walk = slow_block(tokens, q, p[row].tolist(), noise.coins[row].tolist(), noise.gumbel[row, 0].tolist())
        assert_same(verdict, row, *walk)
    assert verdict.accepted.unique().numel() > 2


def test_block_verification_accepts_more_than_token_by_token():
    """The paper's claim (2403.10444, theorem 2): never shorter on average, and longer as a rule."""
    line = [-1, 0, 1, 2]
    gains = [mean_accepted(Block(), seed, line) - mean_accepted(Ratio(), seed, line) for seed in range(6)]
    assert min(gains) >= -1e-9
    assert max(gains) > 0.02


def conditional_distance(law: torch.Tensor, other: torch.Tensor) -> float:
    """The largest TV of one token's law given the tokens before it, over prefixes of positive probability."""
    worst = 0.0
    for behind in range(law.dim()):
        joint, reference = (x.flatten(behind + 1).sum(-1) if behind + 1 < x.dim() else x for x in (law, other))
        mass = joint.sum(-1, keepdim=True), reference.sum(-1, keepdim=True)
        distance = (joint / mass[0].clamp(min=1e-300) - reference / mass[1].clamp(min=1e-300)).abs().sum(-1) / 2
        worst = max(worst, float(distance[(mass[0] > 1e-12)[..., 0] & (mass[1] > 1e-12)[..., 0]].max()))
    return worst


@pytest.mark.parametrize("verification", [Block(), Ratio()], ids=["block", "ratio"])
@pytest.mark.parametrize("eps", [0.05, 0.2])
def test_a_tv_budget_bounds_every_position_given_its_prefix(verification, eps):
    """Catches a budget that adds up along the chain."""
    sampling, target = Sampling(), TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0)
    drafter = TableDrafter(target, chain(3), sampling)
    law = law_of_one_round(target, drafter, verification, TvBudget(eps), sampling)
    worst = conditional_distance(law, sequence_law(target, sampling, [1]))
    assert eps / 2 < worst <= eps + 1e-9


def test_a_tree_with_branches_and_a_rule_for_single_tokens_are_one_clear_error():
    """Catches siblings taken for a chain, and a relaxation that is silently ignored."""
    p = torch.full((1, 3, 4), 0.25)
    siblings = DraftTree(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[-1, 0, 0]]), p)
    gap = DraftTree(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[-1, PADDING, 0]]), p)
    line = DraftTree(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[-1, 0, 1]]), p)
    for tree in (siblings, gap):
        with pytest.raises(LanternError, match=r"this tree branches; use tree=chain or verification=ratio"):
            Block()(tree, p, Exact(), None)
    for rule in (Lantern(CODEBOOK, 2, 0.1), GSD(CODEBOOK, 2, 0.1, 1.0)):
        with pytest.raises(LanternError, match=f"acceptance={rule.name} judges single tokens .*verification=ratio"):
            Block()(line, p, rule, None)
