"""The model in miniature, loaded as users load a model."""

from pathlib import Path

from lantern.api import Model, load
from tools.miniature import write_tiny_weights


def load_tiny(folder: Path, side: int = 16) -> Model:
    """The miniature in double precision, of images of `side` x `side` tokens."""
    return load("llamagen", [f"paths.weights={write_tiny_weights(folder, side)}", "dtype=float64", "device=cpu"])
