"""The contract of a data set: named splits of items that are dicts."""

from typing import Any, Protocol


class Split(Protocol):
    """A sequence of items."""

    fingerprint: str  # a key of everything the items depend on

    @property
    def captions(self) -> list[str]: ...  # of all items, without reading them

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> dict[str, Any]: ...


class Splits(Protocol):
    """A data set: its splits by name, at least `train` and `validation`."""

    def split(self, name: str) -> Split: ...


class SplitsBySource:
    """Takes each split from a data set of its own."""

    def __init__(self, **sources: Splits) -> None:
        self.sources = sources

    def split(self, name: str) -> Split:
        """The split of this name of the data set given under this name."""
        return self.sources[name].split(name)
