"""lantern.check_law tests whether a part keeps the target's law. It enumerates every draw of every round on small
tables, counts images of many codes, and compares token by token what picks by Lantern's shared noise. The result is
written to a certificate beside the file of the part's class; pipelines and rows cite it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from lantern import certificates
from lantern.certificates import Record, class_name, settings_of
from lantern.decoding import DecodingSetup
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.identity import code_hash, digest
from lantern.laws.enumeration import NoLawError, OtherNoiseError, law_of_images
from lantern.laws.passes import pass_deviation
from lantern.laws.results import NO_PROOF, Certificate, Result, print_refused, print_results, print_verdict
from lantern.laws.tables import LongTarget, TableTarget, many_images, p_value, sequence_law
from lantern.laws.trials import APART, LONG_SIZES, LONG_TREES, SAMPLINGS, SIZES, TREES, setups
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.progress_line import ProgressLine
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, Target, TreePolicy, Verification
from lantern.verification import SharedNoise

BINS = 10
COMPARED, COUNTED = 200, 4_000  # images
UNLIKELY = 1e-6  # p-value below which counts deviate from the law
SURE = 4.9  # standard deviations of that


class _Check:
    """The results by labels and shape, and, by role, the settings of foreign parts before and after each use."""

    def __init__(self) -> None:
        self.results: dict[tuple, Result] = {}
        self.refused: dict[tuple, str] = {}
        self.foreign: dict[str, Any] = {}
        self.states: dict[str, list[Record]] = {}

    def add(self, setup: DecodingSetup) -> None:
        drafter = setup.drafter
        parts = {"rule": setup.rule, "verification": setup.verification, "tree": drafter.tree, "drafter": drafter}
        depth, width = certificates.shape_of(drafter)
        depth = min(depth, setup.target.num_tokens - 1)  # behind the first token
        labels = (*certificates.labels_of(parts, setup.sampling.is_greedy).items(), ("depth", depth), ("width", width))
        coins = self.results.get(tuple((name, False if name == "is_greedy" else label) for name, label in labels))
        if setup.sampling.is_greedy and coins and not any(way.startswith("compared") for way in coins.ways):
            return  # greedy decoding tosses none
        self._note(parts)
        try:
            deviation, way = _deviation(setup, counts=labels not in self.results)
        except LanternError as error:  # of parts that do not go together
            self.refused[labels] = str(error)
            return
        self._note(parts)
        told = _told(setup.sampling)
        found = Result(deviation, f"{setup.target.vocab_size} codes, {told}", 1, [way], [told])
        self.results.setdefault(labels, Result()).merge(found)

    def _note(self, parts: Mapping[str, Any]) -> None:
        self.foreign = certificates.foreign_parts(parts)
        for role, part in self.foreign.items():
            try:
                self.states.setdefault(role, []).append(settings_of(part))
            except certificates.NoDescriptionError as error:
                raise LanternError(f"{class_name(part)} has a setting that no certificate can hold: {error}") from error


def check_law(
    rule: AcceptanceRule | Any | None = None, verification: Verification | Any | None = None,
    tree: TreePolicy | Any | None = None, drafter: Drafter | Any | None = None, start: Any | None = None,
    redraw: Any | None = None, target: Any | None = None, prompt: str = "a",
) -> Certificate:  # fmt: skip
    """A part is an object, or a class or partial that gets the `codebook`, `target`, `sampling`, `rule` or `tree` it
    lacks. The tables have 3 and 4 codes: a tree may have at most 3 children per node, and a rule that reads the
    codebook is given as a partial. For roles left out, Lantern's own parts are used: the exact rule, each verification,
    each kind of tree. A verification is enumerated if its only noise is noise.accepts, once a node, and noise.draw.
    start, redraw: of a Jacobi window. A target is checked by itself: passes over trees must be those over tokens."""
    given = {"rule": rule, "verification": verification, "tree": tree, "drafter": drafter}
    given |= {"start": start, "redraw": redraw, "target": target}
    given = {role: part for role, part in given.items() if part is not None}
    if named := [f"{role}={part}" for role, part in given.items() if isinstance(part, str)]:
        raise LanternError(f"{named[0]} is a name; give the part itself, its class or a partial")
    if "target" in given:
        return _check_target(target, prompt)
    tried = [
        setup for sampling in SAMPLINGS for *sizes, spread in (SIZES if sampling == SAMPLINGS[0] else SIZES[:1])
        for setup in setups(given, TableTarget(*sizes, sampling.cfg_scale, spread=spread), sampling, TREES)
    ]  # fmt: skip
    for (codes, tokens), apart in product(LONG_SIZES, APART):
        target = LongTarget(codes, tokens, Sampling().cfg_scale, apart=apart)
        tried += setups(given, target, Sampling(), LONG_TREES)
    check = _Check()
    with closing(ProgressLine("checking")) as line:
        for number, setup in enumerate(tried):
            line.show(number / len(tried), f"{setup.verification.name} on {setup.drafter.tree.kind}", None)
            check.add(setup)
    if not check.results:
        raise LanternError(f"no combination of these parts could be checked: {next(iter(check.refused.values()))}")
    print_results(check.results)
    print_refused({labels: why for labels, why in check.refused.items() if labels not in check.results})
    listed = [{**dict(labels), **asdict(result)} for labels, result in check.results.items()]
    return _certify(check.foreign, check.states, listed)


def _check_target(target: Target, prompt: str) -> Certificate:
    before, (deviation, way) = settings_of(target), pass_deviation(target, prompt)
    target.release()
    result = Result(deviation, prompt, 1, [way])
    foreign = {} if certificates.is_ours(target) else {"target": target}
    return _certify(foreign, {"target": [before, settings_of(target)]}, [asdict(result) | {"depth": 3, "width": 2}])


def _certify(foreign: Mapping[str, Any], states: Mapping[str, list[Record]], results: list[Record]) -> Certificate:
    """Writes and tells what was found."""
    records = {role: certificates.record_of(part, states[role], role) for role, part in foreign.items()}
    by_name: dict[str, Result] = {}
    for found in results:
        own = Result(**{name: found[name] for name in Result.__dataclass_fields__})
        by_name.setdefault(_name(found), Result()).merge(own)
    certificate = Certificate(by_name, _write(foreign, records, results))
    print_verdict(certificate, foreign, certificates.counted_alone(results))
    return certificate


def _deviation(setup: DecodingSetup, counts: bool) -> tuple[float, str]:
    """How far the images are from the target's law, and how that was found. counts: whether an enumerated setup is also
    checked by counting images decoded with its real noise."""
    target, sampling = setup.target, setup.sampling
    parts = target, setup.drafter, setup.verification
    is_long = isinstance(target, LongTarget)
    if not sampling.is_greedy and not is_long:
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
        unseen = f"up to {3 / COMPARED:.2g} of images could differ unseen"
        return float(differing.double().mean()), f"compared token by token over {COMPARED} images ({unseen})"
    deviation, distance = _counted(setup)
    if is_long:
        unseen = f"a share off by under {SURE / 2 / COUNTED**0.5:.1g} could be unseen"
        return deviation, f"counted in {COUNTED} images of {target.vocab_size} codes ({unseen})"
    return distance, f"counted in {COUNTED} images{NO_PROOF if deviation == 0 else ''}"


def _counted(setup: DecodingSetup) -> tuple[float, float]:
    """The distance between many images' frequencies and the law: 0 if chance explains it, then the same as measured."""
    images = many_images(setup.target, setup.drafter, setup.verification, setup.sampling, setup.rule, COUNTED)
    found = []
    for tokens, law in _observed(setup, images):
        each = torch.tensor(1 / len(tokens), dtype=law.dtype)
        shares = torch.zeros_like(law).index_put(tuple(tokens.T), each, True)
        found.append((p_value(tokens, law), float((shares - law).abs().max())))
    least, distance = min(value for value, _ in found) * len(found), max(distance for _, distance in found)
    return (distance if least < UNLIKELY else 0.0), distance


def _observed(setup: DecodingSetup, images: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What is counted of images [B, L], and its law: whole images of few codes; of many codes each token and, over all
    places, the rank of a token in its law and how far a draft's law would favour it, given the token before."""
    target, sampling = setup.target, setup.sampling
    if not isinstance(target, LongTarget):
        yield images, sequence_law(target, sampling)
        return
    laws, count = target.pair_laws(sampling), target.num_tokens - 1
    for place, pairs in enumerate(laws):
        yield images[:, place + 1, None], pairs.sum(0)
    given = sum(laws) / count  # [V, V]
    favour = target.another(1).pair_laws(sampling)[0] / laws[0]
    favour = favour / favour.mean(1, keepdim=True)
    edges = torch.quantile(favour.flatten(), torch.linspace(0, 1, BINS + 1, dtype=favour.dtype)[1:-1])
    for bins in (given.argsort(1, descending=True).argsort(1), torch.bucketize(favour, edges)):
        found = bins[images[:, :-1], images[:, 1:]].flatten()
        yield found[:, None], torch.zeros_like(given[0]).index_add(0, bins.flatten(), given.flatten())


def _name(labels: Record) -> str:
    if "rule" not in labels:
        return "tree passes"
    greedy = ", temperature 0" if labels["is_greedy"] else ""
    return f"{labels['rule']} rule, {labels['verification']} on {labels['tree']}{greedy}"


def _told(sampling: Sampling) -> str:
    cuts = [f"{name} {getattr(sampling, name)}" for name in ("top_k", "top_p") if getattr(sampling, name) not in (0, 1)]
    return " ".join([f"temperature {sampling.temperature:g} guidance {sampling.cfg_scale:g}", *cuts])


def _write(foreign: Mapping[str, Any], parts: Mapping[str, Record], results: list[Record]) -> Path | None:
    """Adds the certificate to the file beside the first part's. Results of the same parts, settings and code are
    merged: what was found to be lossy stays so."""
    if not foreign:
        return None
    source = certificates.source_of(next(iter(foreign.values())))
    if source is None:
        raise LanternError(f"{class_name(next(iter(foreign.values())))} is in no file; save its class in one")
    path = source.with_suffix(certificates.LAW_FILE)
    record = {"parts": parts, "results": results, "code": code_hash(), "torch": torch.__version__}
    key, kept = digest([[one["class"], one["settings"]] for one in parts.values()]), read_object(path)
    before = kept.get(key)
    if before and _versions(before) == _versions(record):
        record["results"] = _merged([*before["results"], *results])
    replace_text(path, json.dumps(kept | {key: record}, indent=2) + "\n")
    return path


def _versions(record: Record) -> list[object]:
    return [record["code"], record["torch"], *(one["code"] for one in record["parts"].values())]


def _merged(results: Iterable[Record]) -> list[Record]:
    """The worst result of each case."""
    worst: dict[str, Record] = {}
    for found in results:
        case = digest({name: label for name, label in found.items() if name not in Result.__dataclass_fields__})
        if case not in worst or found["deviation"] >= worst[case]["deviation"]:
            worst[case] = found
    return [*worst.values()]
