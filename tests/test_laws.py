"""Losslessness: on targets given as tables the joint law of the output is the target's, by enumeration of every draw
under ratio verification, and by counting many images of the whole loop under both verifications."""

import pytest
import torch
from support.tables import deviation, deviation_of_images, law_of_one_round

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.exact import Exact
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
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
from lantern.trees.static import StaticTree, chain
from lantern.verification import Ratio, SharedNoise
from lantern.verification.block import Block
from lantern.verification.shared_law import SharedLaw
from lantern.verification.traversal import Traversal

TREES = {
    "none": None,
    "chain": chain(3),  # longer than the tokens left: its last token may not be drafted
    "static": StaticTree([[0], [1], [0, 0], [1, 0]]),
    "wide": StaticTree([[0], [1], [2], [0, 0], [0, 1]]),
    "eagle2": Eagle2Tree(total=4, depth=2, width=2),
    "ddd": DDDTree(total=4, depth=2, width=2, tau=-0.6, checks=[1]),
    "adaptive": AdaptiveTree(total=4, depth=2, width=2, start=1),
}
RULES = {
    "exact": lambda codebook: Exact(),
    "lantern": lambda codebook: Lantern(codebook, k=2, delta=0.0),
    "lantern_pp": lambda codebook: LanternPP(codebook, k=2, lam=1.0),
}
EXACT_SETTINGS = {  # of rules that relax otherwise
    "tv_budget": lambda codebook: TvBudget(eps=0.0),
    "cool_sd": lambda codebook: CoolSD(delta=0.8, nu=0.5, mu=0.0),
    "entropy_aware": lambda codebook: EntropyAware(alpha=3.0, beta=0.0),
    "gsd": lambda codebook: GSD(codebook, g=1, max_gap=1.0, max_distance=9.0),
    "vvs": lambda codebook: VVS(skip=0),
}
CUTS = {"none": {}, "top_k": {"top_k": 2}, "top_p": {"top_p": 0.75}}


def test_what_the_pipeline_calls_proven_is_proven_here():
    """Catches a claim that outlives its test, and a test that no claim rests on."""
    kinds = {tree.kind if tree else "none" for tree in TREES.values()}
    assert kinds | {KIND} == set(PROVEN_TREES)  # windows: tests/drafters/jacobi/test_window_laws.py
    judged = {type(verification) for verification, _ in LOOPS}
    others = {SharedLaw, GaussianRatio, GaussianShared}  # tests/verification/test_shared_law.py, tests/continuous
    assert judged | others == set(PROVEN_VERIFICATIONS)


def drafter_of(tree, target: TableTarget, sampling: Sampling):
    return NoDrafter() if tree is None else TableDrafter(target, tree, sampling)


JUDGED = [*(("exact", cfg_scale, cut) for cfg_scale in (2.0, 1.0) for cut in CUTS)]
JUDGED += [("lantern", 2.0, "top_k"), ("lantern_pp", 1.0, "top_p")]


@pytest.mark.parametrize(("rule", "cfg_scale", "cut"), JUDGED)
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


WARM, HOT = Sampling(temperature=0.7), Sampling(temperature=1.5, cfg_scale=1.0)
CUT = Sampling(temperature=0.7, top_k=2)
OF_IMAGES = TREES | {"fitting": chain(2)}  # whole as long as it can be: ratio judges it by judge_chain
WHOLE_IMAGES = [  # windows: tests/drafters/jacobi/test_window_laws.py
    *((Ratio(), tree) for tree in ("fitting", "static", "eagle2")),
    (Block(), "fitting"),
    *((Traversal(), tree) for tree in ("fitting", "static", "eagle2")),
    *((Traversal(), tree) for tree in ("ddd", "adaptive")),
    *((Ratio(), tree) for tree in ("ddd", "adaptive")),
    *(pytest.param(part, "wide", marks=pytest.mark.full) for part in (Ratio(), Traversal())),
]


@pytest.mark.parametrize("sampling", [WARM, HOT], ids=["warm", "hot"])
@pytest.mark.parametrize(("verification", "tree"), WHOLE_IMAGES, ids=lambda part: getattr(part, "name", part))
def test_the_joint_law_of_whole_images_is_the_targets_at_any_temperature(verification, tree, sampling):
    """Catches a p that loses its temperature on its way to the verification, first tokens drawn in another way, and a
    bias of any later round."""
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=sampling.cfg_scale)
    assert deviation_of_images(target, drafter_of(OF_IMAGES[tree], target, sampling), verification, sampling) < 1e-9


class RoundedTarget(TableTarget):
    """Logits of half precision, as on a GPU. Of codes 0 and 1 they are equal: ties at the border of top_k."""

    def __init__(self, *sizes, dtype: torch.dtype, **others) -> None:
        super().__init__(*sizes, **others)
        self.table[..., 1] = self.table[..., 0]
        self._dtype = dtype

    def head(self, features):
        return features.to(self._dtype)


@pytest.mark.parametrize("sampling", [WARM, CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("verification", "tree"),
    [(Ratio(), "fitting"), (Ratio(), "static"), (Block(), "fitting"), (Ratio(), "eagle2")],
    ids=lambda part: getattr(part, "name", part),
)
def test_the_law_of_rounded_logits_is_kept(verification, tree, dtype, sampling):
    """Catches laws made in half precision, whose sums are off by a hundredth, and a tie at the border of top_k that p
    and q, or two passes, resolve differently."""
    target = RoundedTarget(3, 4, 2.0, dtype=dtype)
    drafter = drafter_of(OF_IMAGES[tree], target, sampling)
    drafter.model = RoundedTarget(3, 4, 2.0, seed=1, dtype=dtype)
    law = sampling.law(target.forward(torch.zeros(1, 1, dtype=torch.long)).logits)
    assert law.dtype == torch.float32
    assert law[..., 0] == law[..., 1]
    assert deviation_of_images(target, drafter, verification, sampling) < 1e-6


LOOPS = [*((Ratio(), tree) for tree in TREES), (Block(), "chain")]
LOOPS += [*((SharedNoise(), tree) for tree in ("none", "eagle2"))]  # tests/test_any_batch.py: the tokens of "none"
LOOPS += [*((Traversal(), tree) for tree in ("static", "eagle2"))]


@pytest.mark.parametrize(("verification", "tree"), LOOPS, ids=lambda part: getattr(part, "name", part))
def test_many_images_of_the_whole_loop_follow_the_target_law(verification, tree):
    """Catches correlated draws: a key shared between rounds, positions, children, coins or images."""
    sampling = Sampling()
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=sampling.cfg_scale)
    images = many_images(target, drafter_of(TREES[tree], target, sampling), verification, sampling)
    assert p_value(images, sequence_law(target, sampling)) > 1e-6
