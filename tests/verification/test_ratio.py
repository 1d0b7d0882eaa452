"""Ratio verification judges what is reached, or everything where the device cannot be asked: the verdicts are alike."""

from functools import partial

import pytest
import torch
from support.random_trees import widest
from support.toy import CODES, PROMPTS, decode, tiny_eagle, tiny_target

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.exact import Exact
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.typical import Typical
from lantern.acceptance.vvs import VVS
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.starts import Nearest
from lantern.hashing import hash_counters
from lantern.noise import Noise, Purpose
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree
from lantern.types import DraftTree
from lantern.verification import ratio
from lantern.verification.ratio import Ratio, RatioProposals, judge_all_nodes, judge_chain, judge_reached_nodes

CODEBOOK = torch.randn(CODES, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
STATIC = StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])
RULES = [
    Exact(),
    Lantern(CODEBOOK, 3, 0.25),
    LanternPP(CODEBOOK, 3, 2.5),
    TvBudget(0.2),
    CoolSD(1.3, 0.1, 0.0),
    EntropyAware(1.0, 0.5),
    GSD(CODEBOOK, 3, 0.5, 9.0),
    Typical(0.2, 0.3),
    VVS(1),
]
BY_ALL = ("exact", "lantern_pp")  # judged for every drafter; the other rules for one of each kind
SAMPLING = Sampling()


def eagle(tree, target):
    return tiny_eagle(target, tree, SAMPLING)


DRAFTERS = {
    "static": partial(eagle, STATIC),
    "chain": partial(eagle, StaticTree([[0] * (depth + 1) for depth in range(4)], name="chain")),
    "eagle2": partial(eagle, Eagle2Tree(6, 3, 3)),
    "adaptive": partial(eagle, AdaptiveTree(6, 3, 3, 2)),
    "ddd": partial(eagle, DDDTree(6, 3, 3, -1.0, [2])),
    "jacobi": lambda target: Jacobi(target, 4, Nearest(), redraw_coupled, Sampling()),
    "sjd_pac": lambda target: ProactiveJacobi(target, 4, 2, 3, Nearest(), redraw_coupled, Sampling()),
}


class BothWays(Ratio):
    def __init__(self) -> None:
        self.trees: list[DraftTree] = []
        self.chains = 0

    def __call__(self, tree, probs, rule, noise):
        is_chain = tree.topology is not None and tree.topology.width < 2
        expected = judge_reached_nodes(tree, probs, rule, noise)
        for way in [judge_all_nodes, *([judge_chain] if is_chain else [])]:
            found = way(tree, probs, rule, noise)
            assert expected.paths == found.paths
            assert torch.equal(expected.accepted, found.accepted)
            assert torch.equal(expected.next_token, found.next_token)
        self.chains += is_chain and tree.tokens.shape[1] > 1
        self.trees.append(tree)
        return expected


@pytest.mark.parametrize(
    ("drafter", "rule"),
    [(drafter, rule) for rule in RULES for drafter in (DRAFTERS if rule.name in BY_ALL else ("static", "jacobi"))],
    ids=lambda part: getattr(part, "name", part),
)
def test_what_is_judged_everywhere_is_what_a_walk_judges(drafter, rule, monkeypatch):
    """Catches a node judged by the laws of another, coins of another child, a path off the accepted one, and a tree
    that is wider than it says, whose last siblings would go unjudged."""
    monkeypatch.setattr(ratio, "AT_ONCE", 3)  # of the window's 4: its rows end in different blocks
    target, both = tiny_target(), BothWays()
    decode(target, DRAFTERS[drafter](target), SAMPLING, 3, both, rule, PROMPTS[:3], [1, 2, 3])
    widths = [widest(tree) for tree in both.trees]
    assert all(width <= tree.width for width, tree in zip(widths, both.trees, strict=True))
    assert max(widths) == max(tree.width for tree in both.trees)
    assert (both.chains > 0) == (drafter in ("chain", "jacobi"))


def test_the_rarest_codes_of_a_large_codebook_can_be_drawn():
    """Of 65,536 codes with p = 2^-25 but for the last one, 24 random bits draw only every second."""
    law = torch.full((1, 1, 1 << 16), 2.0**-25, dtype=torch.float64)
    law[..., -1] = 1 - law[..., :-1].sum()
    seeds = torch.arange(200_000)
    wanted = (
        hash_counters(seeds, Purpose.WINDOW, torch.tensor(-1), torch.tensor(1)) >> 7
    )  # the code, if it is none too large
    rare = ((wanted < len(law[0, 0]) - 1) & (wanted % 2 == 1)).nonzero()[:5, 0]
    assert len(rare) == 5
    for seed in rare:
        noise = Noise(1, law.shape[-1], 0)
        noise.admit(torch.tensor([0]), seeds[seed, None])
        assert RatioProposals(noise).redraw(law).item() == wanted[seed]
