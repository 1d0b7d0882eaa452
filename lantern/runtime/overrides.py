"""Settings in Hydra's grammar: what one command hands to another is read as it was meant."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from lantern.runtime.home import CONFIG_FOLDER, program_of

REFERENCE = re.compile(r"\$\{.*\}")
UNQUOTED = re.compile(r"[a-zA-Z0-9_/.+%@|?:*-]+")  # what needs no quotes


def override(key: str, value: object) -> str:
    """key=value; a text, such as a path, is quoted where Hydra would read a part of it as grammar."""
    if isinstance(value, list | tuple):
        return f"{key}=[{','.join(map(_element, value))}]"
    if isinstance(value, bool) or value is None:
        return f"{key}={json.dumps(value)}"
    text = str(value)
    return as_typed(f"{key}={text}") if UNQUOTED.fullmatch(text) else f"{key}={quoted(text)}"


def as_typed(override: str) -> str:
    """The override, its value quoted where Hydra cannot read it (a path with = or brackets), or would read a number or
    a truth value for a setting whose default is a text. What else has brackets, commas or quotes is left to Hydra."""
    key, equals, text = override.partition("=")
    if not equals or key[:1] in ("-", "~", "") or text in ("", "null", "???"):
        return override
    is_grammar = not set("()[]{},'\"$").isdisjoint(text)
    try:
        value = OverridesParser.create().parse_override(override).value()
    except HydraException:
        return override if is_grammar and text[0] not in "/.~" else f"{key}={quoted(text)}"
    is_meant = is_grammar or isinstance(value, str) or not _is_text(key.lstrip("+"))
    return override if is_meant else f"{key}={quoted(text)}"


def quoted(text: str) -> str:
    """In Hydra's quotes, where a backslash is one unless a quote follows."""
    return '"' + re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + ('\\"' if found[2] else ""), text) + '"'


def _element(value: object) -> str:
    """Of a list; a text stays one, also with what would be a reference."""
    if isinstance(value, str):
        return quoted(value.replace("${", "\\${"))
    return f"[{','.join(map(_element, value))}]" if isinstance(value, list | tuple) else json.dumps(value, default=str)


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


def config_dir(runtime: Mapping) -> list[str]:
    """--config-dir, for yamls outside the project: relative to the working folder if it was below that."""
    given = [Path(source["path"]) for source in runtime["config_sources"] if source["provider"] == "command-line"]
    inside = [path.is_relative_to(runtime["cwd"]) for path in given]
    shown = [os.path.relpath(path, runtime["cwd"]) if near else path for path, near in zip(given, inside, strict=True)]
    return [word for path in shown for word in ("--config-dir", str(path))]


def command_of(run: Any) -> str:
    """`python evaluate.py …`, or the command of a wheel, as a shell reads it, for one run. run: hydra's own node."""
    single = ["hydra.mode=RUN"] if run.mode == RunMode.MULTIRUN else []  # a point alone, where a preset sweeps
    return shlex.join([*program_of("evaluate.py")[1], *config_dir(run.runtime), *run.overrides.task, *single])


def leaves(settings: object, name: str = "", lists: bool = False) -> dict[str, Any]:
    """The values of nested settings by their dotted names. lists: look into lists, too, else they are values."""
    if isinstance(settings, Mapping) or (lists and isinstance(settings, list | tuple)):
        items = settings.items() if isinstance(settings, Mapping) else enumerate(settings)
        parts = [leaves(value, f"{name}.{key}" if name else str(key), lists) for key, value in items]
        return {key: value for part in parts for key, value in part.items()}
    return {name: settings}
