"""The folder of conf/ and data/, the checkout or one in an installed wheel, and how scripts are started from either."""

import os
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CHECKOUT, BUNDLE = PACKAGE.parent, PACKAGE / "home"  # pyproject.toml writes conf/ and data/ into the wheel's bundle
HOME = BUNDLE if BUNDLE.is_dir() else CHECKOUT
CONFIG_FOLDER = HOME / "conf"
AT_HOME = re.compile(r"~[\w.-]*(/|$)")


def export_paths() -> None:
    """Sets the variables that conf/paths reads, unless the user has: LANTERN_ROOT, with data/, and for an installed
    wheel, whose own folder may not be writable, LANTERN_CACHE."""
    os.environ.setdefault("LANTERN_ROOT", str(HOME))
    if HOME == BUNDLE:
        os.environ.setdefault("LANTERN_CACHE", str(Path.home() / ".cache" / "lantern"))


def in_home(text: str) -> str:
    """The text with the home folder in place of ~/ or ~user/ at its front."""
    return os.path.expanduser(text) if AT_HOME.match(text) else text


def program_of(script: str) -> tuple[list[str], list[str]]:
    """How a script is started, and how a user would: from the checkout, or as a wheel's command by the interpreter."""
    if (path := CHECKOUT / script).is_file():
        return [sys.executable, str(path)], ["python", script]
    installed = f"lantern-{Path(script).stem}"
    beside = Path(sys.executable).with_name(installed)
    return [str(beside) if beside.is_file() else installed], [installed]
