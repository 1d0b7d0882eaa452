"""What a data set is to the rest of Lantern: named splits of items that are dicts."""

from collections.abc import Sequence
from typing import Any, Protocol


class Splits(Protocol):
    """Each split also has `captions`, all of them, and `fingerprint`, a key of everything its items depend on."""

    def split(self, name: str) -> Sequence[dict[str, Any]]: ...


class Chosen:
    """Each split from a source of its own."""

    def __init__(self, **sources: Splits) -> None:
        self.sources = sources

    def split(self, name: str) -> Sequence[dict[str, Any]]:
        return self.sources[name].split(name)
