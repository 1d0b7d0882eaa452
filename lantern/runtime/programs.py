"""How a script of this project, such as evaluate.py, is started: from the checkout, or as the command of a wheel."""

import sys
from pathlib import Path

from lantern.runtime.home import CHECKOUT


def program_of(script: str) -> tuple[list[str], list[str]]:
    """How a script is started, and how a user would start it: from the checkout, or as the command that a wheel
    installed beside the interpreter."""
    if (path := CHECKOUT / script).is_file():
        return [sys.executable, str(path)], ["python", script]
    installed = f"lantern-{Path(script).stem}"
    beside = Path(sys.executable).with_name(installed)
    return [str(beside) if beside.is_file() else installed], [installed]
