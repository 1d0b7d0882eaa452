"""An image's tokens are the same at any batch size and in any order, whatever drafts and whatever judges."""

import json
from functools import cache, partial

import pytest
import torch
from support import toy
from support.paths import GOLDEN
from support.toy import CODES, PROMPTS, tiny_eagle, tiny_target, tiny_window

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.tv_budget import TvBudget
from lantern.drafters.jacobi.corrected import CorrectedJacobi
from lantern.drafters.jacobi.jacobi import Jacobi, redraw, redraw_coupled
from lantern.drafters.jacobi.paths import JacobiPaths
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.drafters.jacobi.starts import Left, Nearest, Uniform
from lantern.drafters.none import NoDrafter
from lantern.row_parallel import RowParallel
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.verification import Ratio, SharedNoise
from lantern.verification.block import Block
from lantern.verification.shared_law import SharedLaw

IMAGES = 8
ORDER = [(11 * i + 5) % IMAGES for i in range(IMAGES)]
SAMPLING = Sampling()
STATIC = StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])
PAPER_FIGURES = StaticTree(json.loads((GOLDEN / "static_trees.json").read_text())["naive_extend_57"])


def eagle(tree, target):
    return tiny_eagle(target, tree, SAMPLING)


def refined(length: int, passes: int, branches: int, target):
    return RefinedJacobi(eagle(STATIC, target).network, target, SAMPLING, length, passes, 0.75, branches)


def corrected(branches: int, target):
    return CorrectedJacobi(tiny_window(target), target, SAMPLING, 5, branches)


def window(target):
    return Jacobi(target, 5, Nearest(), redraw_coupled, SAMPLING)


def none(target):
    return NoDrafter()


# name: what drafts, of a target; what judges; the rule, of a codebook, or exactly
METHODS = {
    "plain": (none, SharedNoise(), None),
    "chain": (partial(eagle, chain(5)), SharedNoise(), None),
    "static": (partial(eagle, STATIC), SharedNoise(), None),
    "published": (partial(eagle, PAPER_FIGURES), SharedNoise(), None),
    "static, ratio": (partial(eagle, STATIC), Ratio(), None),
    "static, ratio, lantern_pp": (partial(eagle, STATIC), Ratio(), lambda codebook: LanternPP(codebook, 5, 3.0)),
    "static, ratio, cool_sd": (partial(eagle, STATIC), Ratio(), lambda codebook: CoolSD(1.3, 0.5, 0.1)),
    "static, shared, tv_budget": (partial(eagle, STATIC), SharedLaw(), lambda codebook: TvBudget(0.2)),
    "eagle2": (partial(eagle, Eagle2Tree(12, 4, 4)), SharedNoise(), None),
    "eagle2, lantern": (
        partial(eagle, Eagle2Tree(12, 4, 4)), SharedNoise(), lambda codebook: Lantern(codebook, 5, 0.2),
    ),
    "eagle2, ratio": (partial(eagle, Eagle2Tree(12, 4, 4)), Ratio(), None),
    "ddd": (partial(eagle, DDDTree(12, 4, 4, -2.0, [1, 2, 3])), SharedNoise(), None),
    "ddd, ratio": (partial(eagle, DDDTree(12, 4, 4, -2.0, [1, 2, 3])), Ratio(), None),
    "adaptive": (partial(eagle, AdaptiveTree(12, 4, 4, 3)), SharedNoise(), None),
    "adaptive, ratio, lantern": (
        partial(eagle, AdaptiveTree(12, 4, 4, 3)), Ratio(), lambda codebook: Lantern(codebook, 5, 0.2),
    ),
    "block": (partial(eagle, chain(4)), Block(), None),
    "jacobi": (window, SharedNoise(), None),
    "jacobi, lantern_pp": (window, SharedNoise(), lambda codebook: LanternPP(codebook, 5, 3.0)),
    "scd": (lambda target: Jacobi(target, 5, Left(), redraw_coupled, SAMPLING), Ratio(), None),
    "sjd": (lambda target: Jacobi(target, 5, Uniform(), redraw, SAMPLING), Ratio(), None),
    "gsd": (
        lambda target: Jacobi(target, 5, Nearest(), redraw, SAMPLING), Ratio(),
        lambda codebook: GSD(codebook, 5, 0.2, 2.0),
    ),
    "sjd_pac": (
        lambda target: ProactiveJacobi(target, 5, 2, 2, Nearest(), redraw_coupled, SAMPLING), SharedNoise(), None,
    ),
    "jacobi_paths": (lambda target: JacobiPaths(target, 3, 2, SAMPLING), Ratio(), None),
    "corrected_jacobi": (partial(corrected, 0), SharedNoise(), None),
    "corrected_branches": (partial(corrected, 6), SharedNoise(), None),
    "corrected_jacobi, lantern_pp": (
        partial(corrected, 0), SharedNoise(), lambda codebook: LanternPP(codebook, 5, 3.0),
    ),
    "refined_jacobi": (partial(refined, 5, 2, 0), SharedNoise(), None),
    "refined_branches": (partial(refined, 5, 1, 6), SharedNoise(), None),
    "rows": (lambda target: RowParallel(2), SharedNoise(), None),
    "pjd": (lambda target: RowParallel(2, 2), SharedNoise(), None),
}  # fmt: skip
FAST = ("plain", "static, ratio, lantern_pp", "static, shared, tv_budget", "eagle2", "eagle2, ratio", "eagle2, lantern")
FAST += ("block", "scd", "jacobi_paths", "refined_branches", "pjd")


def decode(name: str, batch_size: int, order, dtype: torch.dtype) -> torch.Tensor:
    """Tokens [8, L] in the images' own order; image i is prompt i with seed i."""
    drafter, verification, rule = METHODS[name]
    target = tiny_target(dtype=dtype)
    rule, prompts = rule and rule(target.codebook), [PROMPTS[i] for i in order]
    found = toy.decode(target, drafter(target), SAMPLING, batch_size, verification, rule, prompts, order)
    return found.tokens[torch.tensor(order).argsort()]


@cache
def plain() -> torch.Tensor:
    return decode("plain", 1, range(IMAGES), torch.float64)


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(n, marks=pytest.mark.full) for n in METHODS if n not in FAST)])
def test_an_image_is_the_same_at_any_batch_size_and_in_any_order(name):
    """Catches rows that disturb one another, and noise keyed by the row, the round, or the nodes of other rows; under
    shared noise an exact rule's images are plain decoding's. In
    float32 a draw may fall within rounding of a boundary: such images are counted, and one may be of them."""
    alone = decode(name, 1, range(IMAGES), torch.float64)
    assert len(alone.unique(dim=0)) == IMAGES
    assert alone.max() < CODES
    _, verification, rule = METHODS[name]
    if isinstance(verification, SharedNoise) and rule is None and name not in ("rows", "pjd"):
        assert torch.equal(alone, plain())
    for batch_size in (3, IMAGES):
        assert torch.equal(decode(name, batch_size, ORDER, torch.float64), alone)
    alone, together = (decode(name, size, ORDER, torch.float32) for size in (1, IMAGES))
    assert (alone != together).any(1).sum() <= 1
