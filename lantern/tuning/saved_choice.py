"""The shape that tree=auto chose, stored beside a run's records. The choice depends on timings: a restarted run that
searched again might choose another shape, for which the images already made would not count."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from lantern.evaluation.rows import encode
from lantern.pipeline import DrafterOverrides
from lantern.runtime.files import read_object, replace_text
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree

CHOICE = "tree.json"
TREES = {tree.__name__: tree for tree in (Eagle2Tree, StaticTree)}  # that lantern.tuning.families may choose


@dataclass(frozen=True)
class KeptChoice:
    """Implements lantern.tuning.auto.SavedChoice as a JSON file."""

    path: Path
    asked: str  # hash of what decides the choice: a run of anything else in this folder chooses anew

    def read(self) -> list[DrafterOverrides | None]:
        """A list of the chosen shape, None for plain decoding; empty if nothing is stored."""
        kept = read_object(self.path)
        if kept.get("asked") != self.asked or "shape" not in kept:
            return []
        shape = kept["shape"]
        return [DrafterOverrides({name: _built(value) for name, value in shape.items()}) if shape else None]

    def adopt(self, other: Path) -> None:
        """Copies another run's choice, if there is one."""
        if other.is_file():
            replace_text(self.path, encode(read_object(other) | {"asked": self.asked}) + "\n")

    def write(self, shape: DrafterOverrides | None) -> None:
        settings = shape and {name: _written(value) for name, value in shape.settings.items()}
        replace_text(self.path, encode({"asked": self.asked, "shape": settings}) + "\n")


def config_of(tree: object) -> dict[str, object]:
    """The conf/tree entry of a tree that stores its arguments under their names."""
    kind = type(tree)
    return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **_arguments(tree)}


def _arguments(tree: object) -> dict[str, object]:
    return {name: getattr(tree, name) for name in signature(type(tree)).parameters}


def _written(value: object) -> object:
    return value if isinstance(value, int) else {"tree": type(value).__name__, "arguments": _arguments(value)}


def _built(value: object) -> object:
    """A tree by its class's name in TREES; nothing that a file names is imported."""
    return TREES[value["tree"]](**value["arguments"]) if isinstance(value, Mapping) else value
