"""The certificates that lantern.check_law writes beside the classes of parts that are not Lantern's own, and what they
say of a pipeline. A certificate is of code, settings and Lantern's version; it covers what was tried, trees of less
depth and width, and, from DEPTH levels and WIDTH siblings on, all trees of the kind."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import isroutine
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lantern.identity import PACKAGE, VERSIONED, bytes_hash, code_hash, digest, file_hash_of, module_hash, tensor_hash
from lantern.runtime.files import read_object
from lantern.sampling import Sampling
from lantern.types import Drafter, TreeLabel

LAW_FILE = ".law.json"  # suffix of a module's certificates
ROUNDING = 1e-9  # of an enumerated law: more is a deviation
DEPTH, WIDTH = 4, 3  # levels and siblings that stand for all greater numbers of them
OF_A_TREE = (
    "name", "kind", "weights_hash", "paths", "total", "depth", "length", "width", "levels", "beam", "num_nodes",
    "num_expanded",
)  # fmt: skip
# by role, settings that may differ between a check and its use
USE_SETTINGS = {"tree": OF_A_TREE, "drafter": OF_A_TREE, "target": ("cfg_scale", "guidance", "compiles", "name")}
LIBRARIES = VERSIONED | {"numpy", "lantern", "accelerate"}  # whose hooks move a layer between devices
PLAIN_VALUES = bool | int | float | complex | str | bytes | Path | slice | range | np.generic | torch.dtype
Record = dict[str, Any]


class Guarantee(NamedTuple):
    """Whether the output law is the target's, and why a row says so."""

    lossless: bool
    reason: str
    is_open: bool = False  # not yet shown either way


class NoDescriptionError(ValueError):
    """A setting whose content is not known, such as that of an object in C."""


def kind_of(part: object) -> Any:
    """The class of an object; a function or class itself, also within a partial. Where the object, or a module in
    which a target's tokens meet, has a class or a replaced method of somebody else's, the first of these."""
    part = part.func if isinstance(part, partial) else part
    if isroutine(part) or isinstance(part, type):
        return part
    kinds = [kind for one in (part, *getattr(part, "attending_modules", ())) for kind in (type(one), *_replaced(one))]
    return next((kind for kind in kinds if not _is_of_library(kind)), kinds[0])


def _is_of_library(kind: Any) -> bool:
    return str(kind.__module__).split(".")[0] in LIBRARIES


def _replaced(part: object) -> list[Any]:
    """What an object has in place of methods of its class."""
    held = getattr(part, "__dict__", {}).items()
    return [kind_of(own) for name, own in held if callable(own) and callable(getattr(type(part), name, None))]


def is_ours(part: object) -> bool:
    """Whether a part's class or function is Lantern's. Its name cannot tell: any class may have it."""
    return str(kind_of(part).__module__).split(".")[0] == "lantern"


def class_name(part: object) -> str:
    """The file's name and the class's. A module's own name would be __main__ when it is run as a program."""
    source, kind = source_of(part), kind_of(part)
    return f"{source.stem if source else kind.__module__}.{kind.__qualname__}"


def source_of(part: object) -> Path | None:
    """The file of a part's class; None for a class typed into an interpreter."""
    file = getattr(sys.modules.get(str(kind_of(part).__module__)), "__file__", None)
    return Path(file) if file and Path(file).is_file() else None


def foreign_parts(parts: Mapping[str, object]) -> dict[str, object]:
    """By role: of the parts and of what Lantern's own ones hold, such as a window's start, those of somebody else."""
    found = {role: part for role, part in parts.items() if not is_ours(part)}
    for part in filter(is_ours, parts.values()):
        for name, held in vars(part).items() if hasattr(part, "__dict__") else ():
            if not _is_of_library(kind_of(held)) and not isinstance(held, nn.Module) and not _filled_in(held):
                found[name.lstrip("_")] = held
    return found


def code_of_part(part: object) -> str | None:
    source = source_of(part)
    return module_hash(str(kind_of(part).__module__), source) if source else None


def _own_code(kind: Any) -> str | None:
    """Of a function or class that is nobody's library, with all that its file has."""
    return None if _is_of_library(kind) else code_of_part(kind)


def settings_of(part: object) -> Record:
    """By dotted name what a part holds, to the content of tensors, arrays, objects and files that it names; of a target
    numbers and texts, its network's too, as weights have a hash. NoDescriptionError for what has no known content."""
    if _filled_in(part) == "target":
        held = vars(part) | getattr(getattr(getattr(part, "transformer", None), "config", None), "__dict__", {})
        return {name: repr(value) for name, value in held.items() if isinstance(value, bool | int | float | str)}
    return dict(_described(part, "", set()))


def _described(value: Any, name: str, above: set[int]) -> Iterator[tuple[str, object]]:
    if id(value) in above:
        return
    above = above | {id(value)}
    if value is None or isinstance(value, PLAIN_VALUES):
        value = value.item() if isinstance(value, np.generic) else value
        file = file_hash_of(value) if isinstance(value, str | Path) else None
        yield name, f"{value!r} of {file}" if file else repr(value)
    elif isinstance(value, torch.device):
        return
    elif isinstance(value, Tensor):
        yield name, f"{value.dtype} {[*value.shape]} {tensor_hash(value)}"
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield name, f"{value.dtype} {[*value.shape]} {bytes_hash([np.ascontiguousarray(value).tobytes()])}"
    elif part := _filled_in(value):
        if name:
            yield name, part
            return
        yield from _held(value, name, above)
    elif isinstance(value, partial):
        yield from _each({"func": value.func, "args": value.args, "keywords": value.keywords}, name, above)
    elif isinstance(value, MethodType):
        yield from _each({"self": value.__self__, "func": value.__func__}, name, above)
    elif isinstance(value, FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        code = value.__code__
        named = [const for const in code.co_consts if not hasattr(const, "co_code")]
        made_of = value.__qualname__, code.co_code.hex(), repr(named), code.co_names, _own_code(value)
        yield name or "function", digest(made_of)
        yield from _each({"closure": closed, "defaults": [value.__defaults__, value.__kwdefaults__]}, name, above)
    elif isinstance(value, type) or isroutine(value):
        yield name, " ".join(filter(None, [f"{value.__module__}.{value.__qualname__}", _own_code(value)]))
    else:
        yield from _held(value, name, above)


def _held(value: Any, name: str, above: set[int]) -> Iterator[tuple[str, object]]:
    """The class of an object, with its code where it is nobody's library, its items, and its attributes."""
    kinds = [kind for kind in type(value).__mro__ if not _is_of_library(kind)]
    if name and not isinstance(value, Mapping | list | tuple | set | frozenset):
        yield f"{name}()", class_name(value) + (f" {code_of_part(value)}" if kinds else "")
    if isinstance(value, Mapping):
        yield from _each({str(key): item for key, item in value.items()}, name, above)
    elif isinstance(value, list | tuple | set | frozenset | np.ndarray):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        yield from _each({"len": len(items)} | {str(place): item for place, item in enumerate(items)}, name, above)
    elif any(not kind.__flags__ & 1 << 9 for kind in type(value).__mro__[:-1]):  # a class in C
        raise NoDescriptionError(f"{name or class_name(value)} is a {type(value).__qualname__}")
    slots = {slot for kind in type(value).__mro__ for slot in _names(kind.__dict__.get("__slots__", ()))}
    held = {slot: getattr(value, slot) for slot in slots - {"__dict__", "__weakref__"} if hasattr(value, slot)}
    of_class = {key: item for kind in reversed(kinds) for key, item in vars(kind).items() if _is_setting(key, item)}
    yield from _each(of_class | held | getattr(value, "__dict__", {}), name, above)


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return [slots] if isinstance(slots, str) else slots


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute of a class is a value and no method or description."""
    is_made = name.startswith("__") or name in ("_abc_impl", "_is_protocol", "_is_runtime_protocol")
    return not is_made and not isroutine(value) and not hasattr(value, "__get__") and not isinstance(value, type)


def _each(items: Mapping[str, object], name: str, above: set[int]) -> Iterator[tuple[str, object]]:
    for key, value in items.items():
        yield from _described(value, f"{name}.{key}" if name else key, above)


def _filled_in(value: object) -> str | None:
    """What a part is given by the pipeline it is in, which has a role of its own."""
    if isinstance(value, Sampling):
        return "sampling"
    if hasattr(value, "verify") and hasattr(value, "commit"):
        return "target"
    return "tree" if hasattr(value, "grow") else None


def record_of(part: object, states: Sequence[Record], role: str) -> Record:
    """A certificate's record of a part: class, code, and the settings that were the same in all states in which the
    part was tried. Those that followed from tables, trees and samplings, or changed in use, are `free`."""
    known = [_without(state, USE_SETTINGS.get(role, ())) for state in states]
    names = dict.fromkeys(name for state in known for name in state)
    free = {_varied(name, known) for name in names if len({state.get(name, "absent") for state in known}) > 1}
    fixed = {name: known[0][name] for name in names if not _is_free(name, free)}
    return {"class": class_name(part), "code": code_of_part(part), "settings": fixed, "free": sorted(free)}


def _varied(name: str, states: Sequence[Record]) -> str:
    """The setting that varied: where one is missing in some state, what should hold it, such as a list."""
    for end in range(1, name.count(".") + 2):
        above = ".".join(name.split(".")[:end])
        if any(not any(_is_free(key, {above}) for key in state) for state in states):
            return above.rpartition(".")[0] or above
    return name


def _is_free(name: str, free: Iterable[str]) -> bool:
    return any(name == one or name.startswith((f"{one}.", f"{one}()")) for one in free)


def _without(settings: Record, names: Sequence[str]) -> Record:
    return {name: value for name, value in settings.items() if not _is_free(name, names)}


def differing(record: Record, part: object, role: str) -> list[str]:
    """What of a certificate's record is no longer so of a part: its code, or names of its settings."""
    if record["code"] != code_of_part(part):
        return ["code"]
    free = [*record["free"], *USE_SETTINGS.get(role, ())]
    now, then = _without(settings_of(part), free), _without(record["settings"], free)
    names = dict.fromkeys([*then, *now])
    return [f"{name} of {role}" for name in names if then.get(name, "absent") != now.get(name, "absent")]


def labels_of(parts: Mapping[str, Any], is_greedy: bool) -> Record:
    """Of a combination of parts: the names of rule and verification, the tree's kind, and, where it holds parts of
    somebody else, the drafter's class: Lantern's differ only in their laws."""
    drafter: Drafter = parts["drafter"]
    names = {"rule": parts["rule"].name, "verification": parts["verification"].name, "tree": drafter.tree.kind}
    held = foreign_parts({"drafter": drafter}) if is_ours(drafter) else {}
    return names | ({"drafter": type(drafter).__name__} if held else {}) | {"is_greedy": is_greedy}


def shape_of(drafter: Drafter) -> tuple[int, int]:
    """The depth of a drafter's trees, and the most siblings in them."""
    return drafter.depth, getattr(drafter.tree, "width", max(1, drafter.num_nodes - drafter.depth))


def certified(parts: Mapping[str, Any], is_greedy: bool) -> Guarantee:
    """What certificates say of a combination of parts. They must be of all parts together that are not Lantern's: parts
    that keep the law one by one may still break it in combination."""
    foreign = foreign_parts(parts)
    free = {*foreign, *(["tree"] if "drafter" in foreign and isinstance(parts["tree"], TreeLabel) else [])}  # a name
    labels = {role: label for role, label in labels_of(parts, is_greedy).items() if role not in free}
    found, reason = _read(foreign)
    if found:
        file = reason
        reach = [result for result in found if labels.items() <= result.items()]
        depth, width = shape_of(parts["drafter"])
        within = [result for result in reach if result["depth"] <= depth and result["width"] <= width]
        if any(result["deviation"] > ROUNDING for result in within):
            return Guarantee(False, f"{file}: {_told(within)}")
        kept = [result for result in reach if result["deviation"] <= ROUNDING]
        deepest, widest = (max((result[size] for result in kept), default=0) for size in ("depth", "width"))
        if not kept:
            reason = f"{file} does not cover {', '.join(f'{role}={label}' for role, label in labels.items())}"
        elif deepest < min(depth, DEPTH):
            reason = f"{file} was tried to depth {deepest}, this tree has {depth}"
        elif widest < min(width, WIDTH):
            reason = f"{file} was tried with {widest} siblings at most, this tree has {width}"
        else:
            return Guarantee(True, f"{file}: {_told(kept)}")
    call = ", ".join(f"{role}=..." for role in foreign)
    return Guarantee(False, f"{reason}; run lantern.check_law({call})", is_open=True)


def certified_target(target: object) -> Guarantee:
    """Whether a certificate says that a target's passes over trees are its passes over single tokens."""
    found, reason = _read({"target": target})
    if not found:
        return Guarantee(False, f"{reason}; run lantern.check_law(target=..., prompt=...)", is_open=True)
    worst = max(found, key=lambda result: result["deviation"])
    return Guarantee(worst["deviation"] == 0, f"{reason}: passes over trees, {worst['ways'][0]}")


def _read(foreign: Mapping[str, object]) -> tuple[list[Record], str]:
    """All results of certificates of these parts and the name of their file; or none, and why."""
    names = {role: class_name(part) for role, part in foreign.items()}
    results, reason, files = [], f"no certificate for {' with '.join(names.values())}", []
    for source in filter(None, dict.fromkeys(map(source_of, foreign.values()))):
        file = source.with_suffix(LAW_FILE)
        for held in read_object(file).values():
            records = held["parts"]
            if {role: record["class"] for role, record in records.items()} != names:
                continue
            try:
                changed = [one for role, part in foreign.items() for one in differing(records[role], part, role)]
            except NoDescriptionError as error:
                return [], f"{error}, which no certificate can hold"
            if held["code"] != code_hash():
                reason = f"{file.name} was made with other code of Lantern than that in {PACKAGE}"
            elif held["torch"] != torch.__version__:
                reason = f"{file.name} was made with torch {held['torch']}, this is {torch.__version__}"
            elif changed:
                reason = f"{file.name} is of other {'code' if 'code' in changed else f'settings ({changed[0]})'}"
            else:
                results += held["results"]
                files.append(file.name)
    return results, files[0] if files else reason


def _told(results: Sequence[Record]) -> str:
    """How far from the law, and what was tried."""
    worst, cases = max(result["deviation"] for result in results), sum(result["cases"] for result in results)
    depth, width = (max(result[size] for result in results) for size in ("depth", "width"))
    ways, samplings = ([*dict.fromkeys(one for each in results for one in each[key])] for key in ("ways", "samplings"))
    tried = f"to depth {depth}, {width} sibling{'s' * (width > 1)}, at {', '.join(samplings)}"
    alone = counted_alone(results)
    by = ", ".join(way for way in ways if way not in alone)
    return f"{worst:.1g} from the target's law over {cases} cases {by}".rstrip() + f"; tried {tried}{alone}"


def counted_alone(results: Sequence[Record]) -> str:
    """Beyond which trees counts are the only evidence, and what they leave unseen; "" where there are none."""
    proven = [each for each in results if "enumerated" in each["ways"]]
    depth, width = (max((each[size] for each in proven), default=0) for size in ("depth", "width"))
    counted = (each["ways"] for each in results if all(way.startswith("counted") for way in each["ways"]))
    ways = ", ".join(dict.fromkeys(way for found in counted for way in found))
    return f"; beyond depth {depth} and {width} sibling{'s' * (width > 1)} only {ways}" if ways else ""
