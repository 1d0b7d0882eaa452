"""Lantern: fast image generation from visual autoregressive models, with the price in quality measured."""

__version__ = "0.3.0"  # pyproject.toml reads it here

__all__ = ["check_law", "load", "wrap"]


def __getattr__(name: str) -> object:
    """What `load` and `wrap` bring with them (Hydra), and `check_law` (torch), most imports of this do without."""
    if name in ("load", "wrap"):
        from lantern import api

        return getattr(api, name)
    if name == "check_law":
        from lantern.laws.certificate import check_law

        return check_law
    raise AttributeError(f"module 'lantern' has no attribute {name!r}")
