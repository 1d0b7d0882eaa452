"""The folder of conf/ and data/, the checkout or one inside an installed wheel, and how the scripts of this project are
started from either, with settings in Hydra's grammar."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

PACKAGE = Path(__file__).parents[1]
CHECKOUT, BUNDLE = PACKAGE.parent, PACKAGE / "home"  # pyproject.toml writes conf/ and data/ into the wheel's bundle
HOME = BUNDLE if BUNDLE.is_dir() else CHECKOUT
CONFIG_FOLDER = HOME / "conf"
AT_HOME = re.compile(r"~[\w.-]*(/|$)")
REFERENCE = re.compile(r"\$\{.*\}")
UNQUOTED = re.compile(r"[a-zA-Z0-9_/.+%@|?:*-]+")  # what needs no quotes


def export_paths() -> None:
    """Sets the variables that conf/paths reads, unless the user has: LANTERN_ROOT, with data/, and for an installed
    wheel, whose own folder may not be writable, LANTERN_CACHE."""
    os.environ.setdefault("LANTERN_ROOT", str(HOME))
    if HOME == BUNDLE:
        os.environ.setdefault("LANTERN_CACHE", str(Path.home() / ".cache" / "lantern"))


def in_home(text: str) -> str:
    """The text with the home folder in place of ~/ or ~user/ at its front."""
    return os.path.expanduser(text) if AT_HOME.match(text) else text


def run_program(command: Sequence[str]) -> int:
    """Runs a program to its end -> its status. At Ctrl-C, which reaches it too, it may save before it ends."""
    with subprocess.Popen(command) as process:
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)  # of this process alone
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, former)


def program_of(script: str) -> tuple[list[str], list[str]]:
    """How a script is started, and how a user would start it: from the checkout, or as the command that a wheel
    installed beside the interpreter."""
    if (path := CHECKOUT / script).is_file():
        return [sys.executable, str(path)], ["python", script]
    installed = f"lantern-{Path(script).stem}"
    beside = Path(sys.executable).with_name(installed)
    return [str(beside) if beside.is_file() else installed], [installed]


def leaves(settings: object, name: str = "", lists: bool = False) -> dict[str, Any]:
    """The values of nested settings by their dotted names. lists: look into lists, too, else they are values."""
    if isinstance(settings, Mapping) or (lists and isinstance(settings, list | tuple)):
        items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
        parts = [leaves(value, f"{name}.{key}" if name else str(key), lists) for key, value in items]
        return {key: value for part in parts for key, value in part.items()}
    return {name: settings}


def config_dir(runtime: Mapping) -> list[str]:
    """--config-dir, for yamls outside the project: relative to the working folder if it was below that."""
    given = [Path(source["path"]) for source in runtime["config_sources"] if source["provider"] == "command-line"]
    inside = [path.is_relative_to(runtime["cwd"]) for path in given]
    shown = [os.path.relpath(path, runtime["cwd"]) if near else path for path, near in zip(given, inside, strict=True)]
    return [word for path in shown for word in ("--config-dir", str(path))]


def override(key: str, value: object) -> str:
    """key=value; a text, such as a path, is quoted where Hydra would read a part of it as grammar."""
    if isinstance(value, bool | list) or value is None:
        return f"{key}={json.dumps(value, ensure_ascii=False)}"
    text = str(value)
    return as_typed(f"{key}={text}") if UNQUOTED.fullmatch(text) else f"{key}={quoted(text)}"


def as_typed(override: str) -> str:
    """The override, its value quoted where Hydra cannot read it (a path with = or a backslash), or would read a number
    or a truth value for a setting whose default is a text. What has brackets, commas or quotes is left to Hydra."""
    key, equals, text = override.partition("=")
    if not equals or key[:1] in ("-", "~", "") or text in ("", "null", "???") or set(text) & set("()[]{},'\"$"):
        return override
    try:
        value = OverridesParser.create().parse_override(override).value()
    except HydraException:
        return f"{key}={quoted(text)}"
    return override if isinstance(value, str) or not _is_text(key.lstrip("+")) else f"{key}={quoted(text)}"


def quoted(text: str) -> str:
    """In Hydra's quotes, where a backslash is one unless a quote follows."""
    return '"' + re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + ('\\"' if found[2] else ""), text) + '"'


@lru_cache
def _is_text(key: str) -> bool:
    """Whether a yaml has a text as the default of this setting; one that is only a reference may be a number."""
    group, *rest = key.split(".")
    for path in (*CONFIG_FOLDER.glob("*.yaml"), *(CONFIG_FOLDER / group).rglob("*.yaml")):
        node: object = OmegaConf.to_container(OmegaConf.load(path))
        for name in (group, *rest) if path.parent == CONFIG_FOLDER else rest:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, str) and not REFERENCE.fullmatch(node):
            return True
    return False
