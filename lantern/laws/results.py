"""What lantern.check_law found out, merged, and in lines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lantern.certificates import ROUNDING, class_name

# of counts that chance explains
NO_PROOF = ", no proof: it draws otherwise than by noise.accepts, once a node, and noise.draw"


@dataclass
class Result:
    """Of one combination of parts, over all sizes and samplings."""

    deviation: float = 0.0  # largest error of a sequence's probability; of compared tokens, the share that differs
    worst: str = ""
    cases: int = 0
    ways: list[str] = field(default_factory=list)
    samplings: list[str] = field(default_factory=list)

    def merge(self, other: "Result") -> None:
        """A failure stays."""
        if other.deviation >= self.deviation:
            self.deviation, self.worst = other.deviation, other.worst
        self.cases += other.cases
        self.ways = [*dict.fromkeys([*self.ways, *other.ways])]
        self.samplings = [*dict.fromkeys([*self.samplings, *other.samplings])]


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


def print_results(results: Mapping[tuple, Result]) -> None:
    """A line for each verification, and one for its trees on which the law is lost."""
    groups: dict[tuple, list[tuple[dict, Result]]] = {}
    for labels, result in results.items():
        known = dict(labels)
        groups.setdefault((known["verification"], result.deviation <= ROUNDING), []).append((known, result))
    for (verification, is_kept), members in groups.items():
        rest = ", the other cases" if is_kept and (verification, False) in groups else ""
        known, worst = max(members, key=lambda member: member[1].deviation)
        trees, cases = _trees(labels for labels, _ in members), sum(result.cases for _, result in members)
        ways = ", ".join(dict.fromkeys(way for _, result in members for way in result.ways))
        found = f"{worst.deviation:.1g} from the target's law at most ({known['tree']}, {worst.worst})"
        print(f"{verification} on {trees}{rest}: {found}, {cases} cases {ways}")


def print_refused(refused: Mapping[tuple, str]) -> None:
    groups: dict[tuple, list[dict]] = {}
    for labels, why in refused.items():
        groups.setdefault((dict(labels)["verification"], why), []).append(dict(labels))
    for (verification, why), members in groups.items():
        print(f"{verification} on {_trees(members)}: not checked, {why}")


def _trees(combinations: Iterable[Mapping[str, object]]) -> str:
    return ", ".join(dict.fromkeys(str(labels["tree"]) for labels in combinations))


def print_verdict(found: Certificate, foreign: Mapping[str, Any], alone: str) -> None:
    """alone: what certificates.counted_alone says."""
    names = " with ".join(map(_named, foreign.values())) or "parts of Lantern's own"
    kept = [name for name, result in found.results.items() if result.deviation <= ROUNDING]
    lost = found.results.keys() - kept
    written = f"; written: {found.path}" if found.path else ""
    says = "lossless"
    if lost:
        is_open = all(any(NO_PROOF in way for way in found.results[name].ways) for name in lost)
        says = f"NOT {'PROVEN ' if is_open else ''}lossless in {len(lost)} of {len(found.results)} combinations"
    print(f"{names}: {says}, {found.deviation:.1g} from the target's law at most{'' if lost else alone}{written}")
    for role in {"rule", "redraw"} & foreign.keys():
        if not lost and not getattr(foreign[role], "lossless", False):
            print(f"rows call it lossy all the same: {class_name(foreign[role])} has no lossless = True")


def _named(part: object) -> str:
    """The name of a part's class, with a rule's parameters, or the numbers and texts that another part holds."""
    held = getattr(part, "parameters", None) or getattr(part, "__dict__", {})
    given = [f"{name.lstrip('_')}={value}" for name, value in held.items() if isinstance(value, int | float | str)]
    return f"{class_name(part)}({', '.join(given)})" if given else class_name(part)
