"""The model in miniature, loaded as users load a model."""

from pathlib import Path

from lantern.api import Model, load
from tools.miniature import write_tiny_weights


def load_tiny(folder: Path) -> Model:
    """The miniature in double precision."""
    return load("llamagen", [f"paths.weights={write_tiny_weights(folder)}", "dtype=float64", "device=cpu"])
