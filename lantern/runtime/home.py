"""The folder of conf/ and data/: the checkout, or a folder inside the package where a wheel has installed it."""

import os
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CHECKOUT, BUNDLE = PACKAGE.parent, PACKAGE / "home"  # pyproject.toml writes conf/ and data/ into the wheel's bundle
HOME = BUNDLE if BUNDLE.is_dir() else CHECKOUT
CONFIG_FOLDER = HOME / "conf"


def export_paths() -> None:
    """Sets the variables that conf/paths reads, unless the user has: LANTERN_ROOT, with data/, and for an installed
    wheel, whose own folder may not be writable, LANTERN_CACHE."""
    os.environ.setdefault("LANTERN_ROOT", str(HOME))
    if HOME == BUNDLE:
        os.environ.setdefault("LANTERN_CACHE", str(Path.home() / ".cache" / "lantern"))
