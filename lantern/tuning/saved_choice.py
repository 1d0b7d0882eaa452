"""The shape that tree=auto chose, stored beside a run's records. The choice depends on timings: a restarted run that
searched again might choose another shape, for which the images already made would not count."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from hydra.utils import instantiate

from lantern.evaluation.rows import encode
from lantern.pipeline import DrafterOverrides
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.known_targets import check_known

CHOICE = "tree.json"


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
        check_known(kept["shape"], self.path)
        return [
            DrafterOverrides({name: _built(value) for name, value in kept["shape"].items()}) if kept["shape"] else None
        ]

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
    arguments = {name: getattr(tree, name) for name in signature(kind).parameters}
    return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **arguments}


def _written(value: object) -> object:
    return value if isinstance(value, int) else config_of(value)


def _built(value: object) -> object:
    return instantiate(value) if isinstance(value, Mapping) else value
