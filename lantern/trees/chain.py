"""A chain (2211.17192): the static tree of a single path."""

from lantern.errors import LanternError
from lantern.trees.static import StaticTree


def chain(length: int) -> StaticTree:
    """length draft tokens in a row, each the rank-0 child of the one before."""
    if length < 1:
        raise LanternError(f"tree.length={length}: a chain drafts at least one token; use drafter=none for none")
    return StaticTree([[0] * depth for depth in range(1, length + 1)], name=f"chain{length}")
