"""Lantern: fast image generation from visual autoregressive models, with the price in quality measured."""

from importlib import import_module

from lantern.version import __version__

IN = {  # where they are: what they bring with them, such as Hydra and torch, most imports of this do without
    "load": "api", "wrap": "api", "check_law": "laws.certificate", "accelerate": "acceleration",
    "accelerated": "acceleration", "restore": "acceleration", "fit_drafter": "fitting", "LanternError": "errors",
}  # fmt: skip
__all__ = [
    "LanternError", "__version__", "accelerate", "accelerated", "check_law", "fit_drafter", "load", "restore", "wrap",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in IN:
        raise AttributeError(f"module 'lantern' has no attribute {name!r}")
    return getattr(import_module(f"lantern.{IN[name]}"), name)
