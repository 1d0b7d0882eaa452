"""Sizes that would fill the memory, and fractions, are refused before they are built; infinite logits stop decoding."""

import tracemalloc

import pytest
import torch
from support.toy import PROMPTS, SEEDS, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.continuous.latent_jacobi import LatentJacobi
from lantern.decoding import DecodingSetup, generate
from lantern.drafters.jacobi.jacobi import Jacobi, redraw, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.row_parallel import RowParallel
from lantern.runtime.memory import MAX_NODES
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.verification import Ratio, SharedNoise
from lantern.verification.block import Block

MANY, PLAIN, CODEBOOK = 100_000, Sampling(), torch.eye(6)


def refined(length: int, passes: int = 1, branches: int = 0) -> RefinedJacobi:
    target = tiny_target()
    network = tiny_eagle(target, chain(1), Sampling()).network
    return RefinedJacobi(network, target, Sampling(), length, passes, 0.5, branches)


SIZES = {
    "tree.length=100000": lambda: chain(MANY),
    "tree.paths": lambda: StaticTree([[rank] for rank in range(MANY)]),
    "tree.total=100000": lambda: Eagle2Tree(MANY, 50, 50),
    "total=60, depth=100000": lambda: DDDTree(60, MANY, 8, 0.5, ()),
    "total=60, depth=100000, width=8": lambda: AdaptiveTree(60, MANY, 8, 3),
    "drafter.length=100000": lambda: Jacobi(tiny_target(), MANY, Nearest(), redraw_coupled, PLAIN),
    "drafter.levels=500, width=24": lambda: ProactiveJacobi(tiny_target(), 500, 500, 24, Nearest(), redraw, PLAIN),
    "drafter.passes=100000": lambda: refined(4, MANY),
}


@pytest.mark.parametrize("setting", SIZES)
def test_a_size_out_of_all_proportion_is_refused_before_it_is_built(setting):
    """Catches a tree for which the system ends the process: tree=chain tree.length=100000 needs 20 GB of paths."""
    tracemalloc.start()
    with pytest.raises(LanternError) as caught:
        SIZES[setting]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert setting.split(" ")[0] in str(caught.value)
    assert str(MAX_NODES) in str(caught.value)
    assert peak < 100 * 2**20


FRACTIONS = {
    "tree.length": lambda: chain(2.5),
    "tree.total": lambda: Eagle2Tree(7.5, 3, 3),
    "drafter.length": lambda: Jacobi(tiny_target(), 4.5, Nearest(), redraw_coupled, PLAIN),
    "drafter.length=2": lambda: LatentJacobi(tiny_target(), 2.5),
    "acceptance.k": lambda: Lantern(CODEBOOK, 2.5, 0.1),
    "drafter.passes": lambda: refined(4, 1.5),
    "drafter.window": lambda: RowParallel(2.5),
}


@pytest.mark.parametrize("setting", FRACTIONS)
def test_a_fraction_of_a_count_is_refused(setting):
    """Catches a window of 2.5 tokens that decodes as one of 3, and a tree that fails in the middle of decoding."""
    name, _, whole = setting.partition("=")
    with pytest.raises(LanternError, match=rf"{name}={whole or '[0-9]'}\.5 is no whole number"):
        FRACTIONS[setting]()


def window(target):
    return Jacobi(target, 4, Nearest(), redraw, PLAIN)


@pytest.mark.parametrize(("drafter", "verification", "fails_at", "ends_at"), [
    (lambda _: NoDrafter(), SharedNoise(), 0, 1), (window, Ratio(), 5, 9), (window, Block(), 5, 6),
])  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_stop_decoding(value, drafter, verification, fails_at, ends_at, monkeypatch):
    """Catches an image of code 0 that is saved and measured: argmax over NaN is a code like any other."""
    target = tiny_target(dtype=torch.float32)
    passes = []

    def spoiled(forward):
        passes.append(forward)
        return forward._replace(logits=forward.logits * value) if len(passes) > fails_at else forward

    for name in ("prefill", "verify"):
        compute = getattr(target, name)
        monkeypatch.setattr(target, name, lambda *inputs, compute=compute: spoiled(compute(*inputs)))
    setup = DecodingSetup(target, drafter(target), verification, Exact(), Sampling())
    with pytest.raises(LanternError, match="the target's logits are NaN or infinite in dtype=float32"):
        generate(setup, PROMPTS[:2], [1, 2], 2)
    assert len(passes) == ends_at


def test_images_behind_a_decode_that_ended_in_nan_are_what_they_are_without_it(monkeypatch):
    """Catches entries of the same memory that stay NaN behind the mask, until others are written there."""
    target = tiny_target(dtype=torch.float32)
    setup = DecodingSetup(target, tiny_eagle(target, chain(3), PLAIN), SharedNoise(), Exact(), PLAIN)
    plain, compute = generate(setup, PROMPTS, SEEDS, 3).tokens, target.verify
    monkeypatch.setattr(target, "verify", lambda tree: target.cache.store.fill_(torch.nan) is None or compute(tree))
    with pytest.raises(LanternError, match="NaN or infinite"):
        generate(setup, PROMPTS, SEEDS, 3)
    monkeypatch.undo()
    assert torch.equal(generate(setup, PROMPTS, SEEDS, 3).tokens, plain)
