"""Lantern: fast image generation from visual autoregressive models, with the price in quality measured."""

from lantern import _torchvision  # noqa: F401  (before all that imports torchvision: see its docstring)
from lantern.runtime.home import export_paths

export_paths()

__version__ = "0.2.0"

__all__ = ["load"]


def __getattr__(name: str) -> object:
    """`lantern.load` brings Hydra with it, which most imports of the package do without."""
    if name == "load":
        from lantern.api import load

        return load
    raise AttributeError(f"module 'lantern' has no attribute {name!r}")
