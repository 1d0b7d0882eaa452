"""lantern.check_law tests whether a rule, verification, tree or drafter keeps the target's law. It enumerates every
draw of every round on small tables; parts that pick tokens by Lantern's shared noise must give those of plain decoding.
The result is written to a certificate beside the file of the part's class; pipelines and rows cite it."""

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.identity import code_hash, digest
from lantern.laws.enumeration import NoLawError, OtherNoiseError, law_of_images
from lantern.laws.tables import TableDrafter, TableTarget, many_images, p_value, sequence_law
from lantern.pipeline import (
    LAW_FILE,
    ROUNDING,
    bind_missing,
    class_name,
    is_foreign,
    labels_of,
    missing_arguments,
    part_record,
    source_of,
)
from lantern.runtime.files import read_object, replace_text
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.sampled import SampledTree
from lantern.trees.static import StaticTree, chain
from lantern.types import AcceptanceRule, Drafter, TreePolicy, Verification
from lantern.verification import Ratio, SharedNoise, choose_shared_noise
from lantern.verification.block import Block

SIZES = ((3, 4), (4, 3))  # codes, tokens of an image
TREES = (
    partial(chain, 2),
    partial(StaticTree, [[0], [1], [0, 0], [1, 0]]),
    partial(Eagle2Tree, total=4, depth=2, width=2),
    partial(DDDTree, total=4, depth=2, width=2, tau=-0.6, checks=[1]),
    partial(AdaptiveTree, total=4, depth=2, width=2, start=1),
    partial(SampledTree, total=3, depth=2, width=2, beam=1, price=0.12),
)
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.7, cfg_scale=1.0),
    Sampling(temperature=0.7, top_k=2),
    Sampling(temperature=1.5, top_p=0.75),
    Sampling(temperature=0),
)
COMPARED, COUNTED = 200, 4_000  # images
UNLIKELY = 1e-6  # p-value below which counts deviate from the law


@dataclass
class Result:
    """Of one combination of parts, over all sizes and samplings."""

    deviation: float = 0.0  # largest error of a sequence's probability; of compared tokens, the share that differs
    worst: str = ""
    cases: int = 0
    ways: list[str] = field(default_factory=list)

    def add(self, deviation: float, way: str, case: str) -> None:
        if deviation >= self.deviation:
            self.deviation, self.worst = deviation, case
        self.cases += 1
        self.ways += [way] if way not in self.ways else []


@dataclass(frozen=True)
class Certificate:
    """What was found out about parts; path: None for parts of Lantern's own, which its tests cover."""

    results: Mapping[str, Result]  # by the names of the parts
    path: Path | None

    @property
    def lossless(self) -> bool:
        return self.deviation <= ROUNDING

    @property
    def deviation(self) -> float:
        return max(result.deviation for result in self.results.values())


def check_law(
    rule: AcceptanceRule | Any | None = None, verification: Verification | Any | None = None,
    tree: TreePolicy | Any | None = None, drafter: Drafter | Any | None = None,
) -> Certificate:  # fmt: skip
    """A part is an object, or a class or partial that gets the `codebook`, `target`, `sampling`, `rule` or `tree` it
    lacks. The tables have 3 and 4 codes: a tree may have at most 3 children per node, and a rule that reads the
    codebook is given as a partial. For roles left out, Lantern's own parts are used: the exact rule, each verification,
    each kind of tree. A verification is enumerated if its only noise is noise.accepts, once a node, and noise.draw."""
    given = {"rule": rule, "verification": verification, "tree": tree, "drafter": drafter}
    given = {role: part for role, part in given.items() if part is not None}
    if named := [f"{role}={part}" for role, part in given.items() if isinstance(part, str)]:
        raise LanternError(f"{named[0]} is a name; give the part itself, its class or a partial")
    results: dict[tuple, Result] = {}
    refused: dict[tuple, str] = {}
    parts: dict[str, Any] = {}
    for sampling in SAMPLINGS:
        for sizes in SIZES:
            for setup in _setups(given, sampling, *sizes):
                parts = _parts(setup)
                labels = tuple(labels_of(parts, sampling.is_greedy).items())
                enumerated = results.get((*labels[:-1], ("is_greedy", False)))
                if sampling.is_greedy and enumerated and "enumerated" in enumerated.ways:
                    continue  # coins: greedy decoding has none
                try:
                    deviation, way = _deviation(setup, counts=labels not in results)
                except LanternError as error:  # of parts that do not go together
                    refused[labels] = str(error)
                    continue
                results.setdefault(labels, Result()).add(deviation, way, _case(setup))
    if not results:
        raise LanternError(f"no combination of these parts could be checked: {next(iter(refused.values()))}")
    _print_results(results)
    _print_refused({labels: why for labels, why in refused.items() if labels not in results})
    foreign = {role: part for role, part in parts.items() if is_foreign(part)}
    found = Certificate({_name(labels): result for labels, result in results.items()}, _write(foreign, results))
    _print_verdict(found, foreign)
    return found


def _setups(given: Mapping[str, Any], sampling: Sampling, codes: int, tokens: int) -> Iterator[DecodingSetup]:
    target = TableTarget(codes, tokens, sampling.cfg_scale)
    rule = _made(given.get("rule", Exact), codebook=target.codebook)
    own = (Ratio(), choose_shared_noise(rule), Block())
    for verification in [given["verification"]] if "verification" in given else own:
        verifier = _made(verification, rule=rule, sampling=sampling, target=target)
        for drafter in _drafters(given, target, sampling):
            yield DecodingSetup(target, drafter, verifier, rule, sampling)


def _drafters(given: Mapping[str, Any], target: TableTarget, sampling: Sampling) -> Iterator[Drafter]:
    drafter = _recipe(given.get("drafter", TableDrafter))
    takes_tree = "tree" in missing_arguments(drafter)
    for tree in [given["tree"]] if "tree" in given else TREES if takes_tree else [None]:
        made = _made(tree)
        if getattr(made, "width", 0) > min(codes for codes, _ in SIZES):
            raise LanternError(f"the tree has {made.width} children a node, the tables 3 codes; give it 3 at most")
        yield _made(drafter, target=target, sampling=sampling, tree=made)
    if not given.keys() & {"tree", "drafter"}:
        yield NoDrafter()
        yield Jacobi(target, 2, Nearest(), redraw_coupled, sampling)


def _recipe(part: Any) -> Any:
    return partial(part) if isinstance(part, type) or inspect.isroutine(part) else part


def _made(part: Any, **available: object) -> Any:
    return bind_missing(_recipe(part), **available)


def _parts(setup: DecodingSetup) -> dict[str, Any]:
    drafter = setup.drafter
    return {"rule": setup.rule, "verification": setup.verification, "tree": drafter.tree, "drafter": drafter}


def _deviation(setup: DecodingSetup, counts: bool) -> tuple[float, str]:
    """How far the images are from the target's law, and how that was found. counts: whether an enumerated setup is also
    checked by counting images decoded with its real noise."""
    target, sampling = setup.target, setup.sampling
    parts = target, setup.drafter, setup.verification
    if not sampling.is_greedy:
        try:
            law = law_of_images(*parts, setup.rule, sampling)
            off = (law - sequence_law(target, sampling)).abs().max().nan_to_num(1.0)
            return max(float(off), _counted(setup)[0] if counts else 0.0), "enumerated"
        except NoLawError:
            return 1.0, "enumerated"
        except OtherNoiseError:
            pass
    tokens = many_images(*parts, sampling, setup.rule, COMPARED)
    differing = tokens != many_images(target, NoDrafter(), SharedNoise(), sampling, count=COMPARED)
    if sampling.is_greedy or not bool(differing.any()):
        return float(differing.double().mean()), "compared token by token"
    _, distance = _counted(setup)
    return distance, f"counted in {COUNTED} images, no proof"


def _counted(setup: DecodingSetup) -> tuple[float, float]:
    """The distance between many images' frequencies and the law: 0 if chance explains it, then the same as measured."""
    images = many_images(setup.target, setup.drafter, setup.verification, setup.sampling, setup.rule, COUNTED)
    law = sequence_law(setup.target, setup.sampling)
    shares = torch.zeros_like(law).index_put(tuple(images.T), torch.tensor(1 / COUNTED, dtype=law.dtype), True)
    distance = float((shares - law).abs().max())
    return (distance if p_value(images, law) < UNLIKELY else 0.0), distance


def _name(labels: tuple) -> str:
    known = dict(labels)
    greedy = ", temperature 0" if known["is_greedy"] else ""
    return f"{known['rule']} rule, {known['verification']} on {known['tree']}{greedy}"


def _case(setup: DecodingSetup) -> str:
    sampling = setup.sampling
    cuts = [f"{name} {getattr(sampling, name)}" for name in ("top_k", "top_p") if getattr(sampling, name) not in (0, 1)]
    settings = [f"temperature {sampling.temperature}", f"guidance {sampling.cfg_scale}", *cuts]
    return ", ".join([f"{setup.target.vocab_size} codes", *settings])


def _write(foreign: Mapping[str, Any], results: Mapping[tuple, Result]) -> Path | None:
    """Adds the certificate to the file beside the first part's, in the place of an earlier one of the same parts and
    settings."""
    if not foreign:
        return None
    source = source_of(next(iter(foreign.values())))
    if source is None:
        raise LanternError(f"{class_name(next(iter(foreign.values())))} is in no file; save its class in one")
    path, parts = source.with_suffix(LAW_FILE), {role: part_record(role, part) for role, part in foreign.items()}
    key = digest([[record["class"], record["settings"]] for record in parts.values()])
    listed = [{**dict(labels), **vars(result)} for labels, result in results.items()]
    record = {"parts": parts, "results": listed, "code": code_hash(), "torch": torch.__version__}
    replace_text(path, json.dumps(read_object(path) | {key: record}, indent=2) + "\n")
    return path


def _print_results(results: Mapping[tuple, Result]) -> None:
    """A line for each verification, and one for its trees on which the law is lost."""
    groups: dict[tuple, list[tuple[dict, Result]]] = {}
    for labels, result in results.items():
        known = dict(labels)
        groups.setdefault((known["verification"], result.deviation <= ROUNDING), []).append((known, result))
    for (verification, _), members in groups.items():
        known, worst = max(members, key=lambda member: member[1].deviation)
        trees, cases = _trees(labels for labels, _ in members), sum(result.cases for _, result in members)
        ways = ", ".join(dict.fromkeys(way for _, result in members for way in result.ways))
        found = f"{worst.deviation:.1g} from the target's law at most ({known['tree']}, {worst.worst})"
        print(f"{verification} on {trees}: {found}, {cases} cases {ways}")


def _print_refused(refused: Mapping[tuple, str]) -> None:
    groups: dict[tuple, list[dict]] = {}
    for labels, why in refused.items():
        groups.setdefault((dict(labels)["verification"], why), []).append(dict(labels))
    for (verification, why), members in groups.items():
        print(f"{verification} on {_trees(members)}: not checked, {why}")


def _trees(combinations: Iterable[Mapping[str, object]]) -> str:
    return ", ".join(dict.fromkeys(str(labels["tree"]) for labels in combinations))


def _print_verdict(found: Certificate, foreign: Mapping[str, Any]) -> None:
    names = " with ".join(map(class_name, foreign.values())) or "parts of Lantern's own"
    kept = [name for name, result in found.results.items() if result.deviation <= ROUNDING]
    lost = found.results.keys() - kept
    written = f"; written: {found.path}" if found.path else ""
    says = f"NOT lossless in {len(lost)} of {len(found.results)} combinations" if lost else "lossless"
    print(f"{names}: {says}, {found.deviation:.1g} from the target's law at most{written}")
    if not lost and "rule" in foreign and not foreign["rule"].lossless:
        print(f"rows call it lossy all the same, as {class_name(foreign['rule'])}.lossless is false")
