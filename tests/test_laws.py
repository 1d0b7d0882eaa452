"""Losslessness: on targets given as tables the joint law of the output is the target's, by enumeration of every draw
under ratio verification, and by counting many images of the whole loop under both verifications."""

import pytest
from support.tables import deviation, law_of_one_round

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.exact import Exact
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.transport import Transport
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.vvs import VVS
from lantern.continuous.gaussian_ratio import GaussianRatio
from lantern.continuous.gaussian_shared import GaussianShared
from lantern.drafters.jacobi.window import KIND
from lantern.drafters.none import NoDrafter
from lantern.laws.tables import TableDrafter, TableTarget, many_images, p_value, sequence_law
from lantern.pipeline import PROVEN_TREES, PROVEN_VERIFICATIONS
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.sampled import SampledTree
from lantern.trees.static import StaticTree, chain
from lantern.verification.block import Block
from lantern.verification.ratio import Ratio
from lantern.verification.shared_law import SharedLaw
from lantern.verification.shared_noise import SharedNoise

TREES = {
    "none": None,
    "chain": chain(3),  # longer than the tokens left: its last token may not be drafted
    "static": StaticTree([[0], [1], [0, 0], [1, 0]]),
    "wide": StaticTree([[0], [1], [2], [0, 0], [0, 1]]),
    "eagle2": Eagle2Tree(total=4, depth=2, width=2),
    "ddd": DDDTree(total=4, depth=2, width=2, tau=-0.6, checks=[1]),
    "adaptive": AdaptiveTree(total=4, depth=2, width=2, start=1),
    "sampled": SampledTree(total=4, depth=2, width=2, beam=2, price=0.12),
}
RULES = {
    "exact": lambda codebook: Exact(),
    "lantern": lambda codebook: Lantern(codebook, k=2, delta=0.0),
    "lantern_pp": lambda codebook: LanternPP(codebook, k=2, lam=1.0),
}
EXACT_SETTINGS = {  # of rules that relax otherwise
    "tv_budget": lambda codebook: TvBudget(eps=0.0),
    "transport": lambda codebook: Transport(codebook, k=2, eps=0.0),
    "cool_sd": lambda codebook: CoolSD(delta=0.8, nu=0.5, mu=0.0),
    "entropy_aware": lambda codebook: EntropyAware(alpha=3.0, beta=0.0),
    "gsd": lambda codebook: GSD(codebook, g=1, max_gap=1.0, max_distance=9.0),
    "vvs": lambda codebook: VVS(skip=0),
}
CUTS = {"none": {}, "top_k": {"top_k": 2}, "top_p": {"top_p": 0.75}}


def test_what_the_pipeline_calls_proven_is_proven_here():
    """Catches a claim that outlives its test, and a test that no claim rests on."""
    kinds = {tree.kind if tree else "none" for tree in TREES.values()}
    assert kinds | {KIND} == set(PROVEN_TREES)  # windows: tests/drafters/test_window_laws.py
    judge_reached_nodes = {type(verification) for verification, _ in LOOPS}
    others = {SharedLaw, GaussianRatio, GaussianShared}  # tests/verification/test_shared_law.py, tests/continuous
    assert judge_reached_nodes | others == set(PROVEN_VERIFICATIONS)


def drafter_of(tree, target: TableTarget, sampling: Sampling):
    return NoDrafter() if tree is None else TableDrafter(target, tree, sampling)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("cfg_scale", [2.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tree", TREES)
def test_ratio_leaves_the_joint_law_of_the_target_unchanged(tree, rule, cfg_scale, cut):
    """Catches any bias of acceptance, residual, sibling order or bonus token, to 1e-9."""
    sampling = Sampling(cfg_scale=cfg_scale, **CUTS[cut])
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=cfg_scale)
    drafter = drafter_of(TREES[tree], target, sampling)
    assert deviation(target, drafter, Ratio(), RULES[rule](target.codebook), sampling) < 1e-9


@pytest.mark.parametrize("rule", EXACT_SETTINGS)
@pytest.mark.parametrize("tree", ["static", "wide", "eagle2"])
def test_a_rule_set_to_relax_nothing_leaves_the_joint_law_unchanged(tree, rule):
    """Catches a rule that calls itself lossless and is not, over several levels and siblings, to 1e-9."""
    sampling = Sampling()
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0)
    judging = EXACT_SETTINGS[rule](target.codebook)
    assert judging.lossless
    assert deviation(target, drafter_of(TREES[tree], target, sampling), Ratio(), judging, sampling) < 1e-9


@pytest.mark.parametrize(
    "rule",
    [lambda codebook: Lantern(codebook, 2, 0.3), lambda codebook: LanternPP(codebook, 2, 3.0)],
    ids=["add", "multiply"],
)
@pytest.mark.parametrize("tree", ["static", "eagle2"])
def test_relaxed_rules_do_change_the_law(tree, rule):
    """Catches a rule that relaxes nothing, and an enumeration that is blind to what a rule does."""
    sampling = Sampling()
    target = TableTarget(vocab_size=4, num_tokens=3, cfg_scale=2.0)
    drafter = drafter_of(TREES[tree], target, sampling)
    law = law_of_one_round(target, drafter, Ratio(), rule(target.codebook), sampling)
    assert law.sum() == pytest.approx(1, abs=1e-9)
    assert (law - sequence_law(target, sampling, [1])).abs().max() > 1e-3


def test_enumeration_covers_all_randomness():
    """Catches an enumeration whose weights do not add up."""
    sampling = Sampling()
    target = TableTarget(vocab_size=4, num_tokens=3, cfg_scale=2.0)
    law = law_of_one_round(target, drafter_of(TREES["wide"], target, sampling), Ratio(), Exact(), sampling)
    assert law.sum() == pytest.approx(1, abs=1e-12)


SAMPLINGS = [
    pytest.param(Sampling(), id="plain"),
    pytest.param(Sampling(top_k=2, cfg_scale=1.0), id="top_k", marks=pytest.mark.full),
]
LOOPS = [*((verification, tree) for verification in (Ratio(), SharedNoise()) for tree in TREES), (Block(), "chain")]


@pytest.mark.parametrize(("verification", "tree"), LOOPS, ids=lambda part: getattr(part, "name", part))
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_many_images_of_the_whole_loop_follow_the_target_law(verification, tree, sampling):
    """Catches correlated draws: a key shared between rounds, positions, children, coins or images."""
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=sampling.cfg_scale)
    images = many_images(target, drafter_of(TREES[tree], target, sampling), verification, sampling)
    assert p_value(images, sequence_law(target, sampling)) > 1e-6
