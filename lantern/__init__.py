"""Lantern: fast image generation from visual autoregressive models, with the price in quality measured."""

from lantern import _torchvision  # noqa: F401  (before all that imports torchvision: see its docstring)
from lantern.runtime.home import export_paths

export_paths()

__version__ = "0.2.0"

__all__ = ["check_law", "load"]


def __getattr__(name: str) -> object:
    """`lantern.load` brings Hydra with it, `lantern.check_law` torch, which most imports of the package do without."""
    if name == "load":
        from lantern.api import load

        return load
    if name == "check_law":
        from lantern.laws.certificate import check_law

        return check_law
    raise AttributeError(f"module 'lantern' has no attribute {name!r}")
