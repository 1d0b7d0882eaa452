"""A cache of results by tensor identity: AR's images are judged alone, and again against the method's."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

Found = TypeVar("Found")


class TensorMemo(Generic[Found]):
    """Calls `find` once for each tensor; a result lives as long as its tensor."""

    def __init__(self, find: Callable[..., Found]) -> None:
        self._find = find
        self._found: list[tuple[ref, Found]] = []

    def __call__(self, images: Tensor, *others: object) -> Found:
        """The result for these images; `others` must be the same for the same images."""
        self._found = [(of, found) for of, found in self._found if of() is not None]
        for of, found in self._found:
            if of() is images:
                return found
        self._found.append((ref(images), self._find(images, *others)))
        return self._found[-1][1]
