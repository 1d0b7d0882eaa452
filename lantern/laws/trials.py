"""What lantern.check_law tries: small tables and long ones, samplings, and the setups that a part can be in."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.laws.tables import TableDrafter, TableTarget
from lantern.pipeline import bind_missing, missing_arguments
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import Drafter
from lantern.verification import Ratio, choose_shared_noise
from lantern.verification.block import Block

Parts = Mapping[str, Any]  # those that are checked, by what they are
# codes, tokens of an image, spread of the logits: at the last there are codes as rare as in large codebooks
SIZES = ((3, 4, 0.0), (4, 3, 0.0), (3, 4, 3.0))
TREES = (
    partial(chain, 2), partial(StaticTree, [[0], [1], [0, 0], [1, 0]]), partial(Eagle2Tree, total=4, depth=2, width=2),
    partial(DDDTree, total=4, depth=2, width=2, tau=-0.6, checks=[1]),
    partial(AdaptiveTree, total=4, depth=2, width=2, start=1),
)  # fmt: skip
LONG_SIZES = ((40, 6),)  # too many to enumerate: images are counted
APART = (0.3, 1.0)  # the laws of their drafts: long drafts are accepted, late siblings judged
LONG_TREES = (
    partial(chain, 4), partial(StaticTree, [[0], [1], [2], [0, 0], [0, 1], [0, 0, 0], [0, 0, 0, 0]]),
    partial(Eagle2Tree, total=10, depth=4, width=3),
    partial(DDDTree, total=10, depth=4, width=3, tau=-3.0, checks=[2]),
    partial(AdaptiveTree, total=10, depth=4, width=3, start=4),
)  # fmt: skip
SAMPLINGS = (  # what a rule forgets is found out by one of them alone
    Sampling(),
    Sampling(temperature=0.7),
    Sampling(top_k=2),
    Sampling(top_p=0.75, cfg_scale=1.0),
    Sampling(temperature=1.5, top_p=0.75),
    Sampling(temperature=0),
)


def setups(given: Parts, target: TableTarget, sampling: Sampling, trees: Sequence) -> Iterator[DecodingSetup]:
    rule = _made(given.get("rule", Exact), codebook=target.codebook)
    own = (Ratio(), choose_shared_noise(rule), Block())
    for verification in [given["verification"]] if "verification" in given else own:
        verifier = _made(verification, rule=rule, sampling=sampling, target=target)
        for drafter in _drafters(given, target, sampling, trees):
            yield DecodingSetup(target, drafter, verifier, rule, sampling)


def _drafters(given: Parts, target: TableTarget, sampling: Sampling, trees: Sequence) -> Iterator[Drafter]:
    length = 2 if trees is TREES else 4
    windows = [partial(Jacobi, length=length), partial(ProactiveJacobi, length=length, levels=1, width=2)]
    held = {"start": _object(given.get("start", Nearest)), "redraw": _object(given.get("redraw", redraw_coupled))}
    if given.keys() & {"start", "redraw"}:
        for window in [_recipe(given["drafter"])] if "drafter" in given else windows:
            yield _made(window, target=target, sampling=sampling, **held)
        return
    drafter = _recipe(given.get("drafter", TableDrafter))
    takes_tree = "tree" in missing_arguments(drafter)
    for tree in [given["tree"]] if "tree" in given else trees if takes_tree else [None]:
        made = _made(tree)
        if getattr(made, "width", 0) > min(codes for codes, *_ in SIZES):
            raise LanternError(f"the tree has {made.width} children a node, the tables 3 codes; give it 3 at most")
        yield _made(drafter, target=target, sampling=sampling, tree=made)
    if not given.keys() & {"tree", "drafter"}:
        yield NoDrafter()
        yield _made(windows[0], target=target, sampling=sampling, **held)


def _object(part: Any) -> Any:
    """A start or redraw: a class is called, a function is the part itself."""
    return part() if isinstance(part.func if isinstance(part, partial) else part, type) else part


def _recipe(part: Any) -> Any:
    return partial(part) if isinstance(part, type) or inspect.isroutine(part) else part


def _made(part: Any, **available: object) -> Any:
    return bind_missing(_recipe(part), **available)
