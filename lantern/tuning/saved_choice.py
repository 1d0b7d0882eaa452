"""What tree=auto chose, kept beside a run's records: it goes by timings, so that a killed run that searched again might
find another shape, under which nothing that was made before would count."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from hydra.utils import instantiate

from lantern.evaluation.rows import encode
from lantern.pipeline import Shape
from lantern.runtime.files import replace_text
from lantern.types import TreePolicy

CHOICE = "tree.json"


@dataclass(frozen=True)
class KeptChoice:
    path: Path
    asked: str  # the request of the run it is for: another run in this folder chooses anew

    def read(self) -> list[Shape | None]:
        """The shape that was chosen, or nothing; plain decoding is None."""
        kept = json.loads(self.path.read_text()) if self.path.is_file() else {}
        if kept.get("asked") != self.asked:
            return []
        return [Shape({name: _built(value) for name, value in kept["shape"].items()}) if kept["shape"] else None]

    def adopt(self, other: Path) -> None:
        """Takes over what another run has chosen, if it has."""
        if other.is_file():
            replace_text(self.path, encode(json.loads(other.read_text()) | {"asked": self.asked}) + "\n")

    def write(self, shape: Shape | None) -> None:
        settings = shape and {name: _written(value) for name, value in shape.settings.items()}
        replace_text(self.path, encode({"asked": self.asked, "shape": settings}) + "\n")


def config_of(tree: TreePolicy) -> dict[str, object]:
    """What conf/tree holds of a tree that keeps its arguments under their names."""
    kind = type(tree)
    arguments = {name: getattr(tree, name) for name in signature(kind).parameters}
    return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **arguments}


def _written(value: object) -> object:
    return value if isinstance(value, int) else config_of(value)


def _built(value: object) -> object:
    return instantiate(value) if isinstance(value, Mapping) else value
