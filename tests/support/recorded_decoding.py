"""Drafters of every kind on the tiny target, whose passes may be recorded."""

from functools import lru_cache, partial

import torch
from support import toy
from support.toy import tiny_eagle, tiny_target, tiny_window

from lantern.drafters.jacobi.corrected import CorrectedJacobi
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.engine.graphs import PassGraphs
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree

STATIC = StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])


def eagle(tree, target):
    return tiny_eagle(target, tree, Sampling())


def refined(target, branches: int) -> RefinedJacobi:
    return RefinedJacobi(eagle(STATIC, target).network, target, Sampling(), 4, 2, 0.7, branches)


DRAFTERS = {
    "plain": lambda target: NoDrafter(),
    "static": partial(eagle, STATIC),
    "eagle2": partial(eagle, Eagle2Tree(6, 3, 3)),
    "jacobi": lambda target: Jacobi(target, 4, Nearest(), redraw_coupled, Sampling()),
    "eagle3": lambda target: tiny_eagle(target, STATIC, Sampling(), layers=(1, 0)),
    "refined": lambda target: refined(target, 0),
    "refined_eagle3": lambda target: RefinedJacobi(drafter_of(target, "eagle3").network, target, Sampling(), 4, 2, 0.7),
    "refined_branches": lambda target: refined(target, 3),
    "corrected": lambda target: CorrectedJacobi(tiny_window(target), target, Sampling(), 4),
    "corrected_branches": lambda target: CorrectedJacobi(tiny_window(target), target, Sampling(), 4, 3),
}


@lru_cache(maxsize=16)
def drafter_of(target, drafter: str):
    """As pipelines keep theirs: recordings are of one drafter's weights."""
    return DRAFTERS[drafter](target)


def decode(target, drafter: str, batch_size: int) -> torch.Tensor:
    return toy.decode(target, drafter_of(target, drafter), Sampling(cfg_scale=target.cfg_scale), batch_size).tokens


def recorded_target(recorder) -> object:
    target = tiny_target()
    target.passes = PassGraphs(recorder)
    return target
