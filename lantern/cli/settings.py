"""The settings of a command: what --help prints of them, and those that are refused because nothing would read them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from inspect import signature
from pkgutil import resolve_name
from textwrap import fill
from types import NoneType
from typing import get_args

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from lantern.errors import LanternError, is_number, meant
from lantern.runtime.home import CONFIG_FOLDER
from lantern.runtime.overrides import leaves

GROUPS = "Groups, as group=option; those with a + are added, as +group=option:"
# in a yaml's defaults; what it is
GROUP = re.compile(r"  (?:- (?:optional )?(?=[^#]*#)|# (\+?))(\w+):(?:[^#]*#)? (.+)")
SETTING = re.compile(r"\w+(\.\w+)+=.+", re.DOTALL)
OWN = "Its own settings, as setting=value, with their defaults (conf/{}.yaml):"
REST = "--cfg job prints all settings, those of the chosen options included; their yaml in conf/ explains them."
SWEEPS_OF_TRAIN = ("recipe",)
SWITCHES = ("compile", "tf32", "dry_run")
DEEP = " " * 6


def help_page(command: str) -> str:
    """What `command` does, its groups and its own settings, as its yaml says. Hydra's page lists every group of conf/
    and the whole configuration, hundreds of lines."""
    defaults, _, rest = (CONFIG_FOLDER / f"{command}.yaml").read_text().partition("\n\n")
    head = [line.removeprefix("# ") for line in defaults.splitlines() if line.startswith("#")]
    own = rest.split("\n\nhydra:")[0]
    groups = [_group(command, name, *about) for name, about in groups_of(command).items()]
    page = "\n\n".join(["\n".join(head), "\n".join([GROUPS, *groups]), OWN.format(command), own, REST])
    return page.replace("$", "$$")  # Hydra reads it as a string.Template


OmegaConf.register_new_resolver("lantern_help", help_page, replace=True)  # by which conf/ names hydra.help.template


def groups_of(command: str) -> dict[str, tuple[str, str]]:
    """By name the groups of conf/ that a command reads: "+" where it is to be added, and what it is."""
    lines = (CONFIG_FOLDER / f"{command}.yaml").read_text().partition("\n\n")[0].splitlines()
    return {found[2]: (found[1] or "", found[3]) for line in lines if (found := GROUP.fullmatch(line))}


def _group(command: str, name: str, sign: str, about: str) -> str:
    folder = "drafter/training" if name == "drafter" and command != "evaluate" else name
    options = sorted(file.stem for file in (CONFIG_FOLDER / folder).glob("*.yaml"))
    if name == "sweep":
        options = [option for option in options if (option in SWEEPS_OF_TRAIN) == (command == "train")]
    listed = fill(", ".join(options), 118, initial_indent=DEEP, subsequent_indent=DEEP)
    return f"  {sign}{name}: {about}\n{listed}"


def check_settings(cfg: DictConfig) -> None:
    for switch in SWITCHES:
        if not isinstance(cfg[switch], bool):
            raise LanternError(f"{switch}={cfg[switch]} is no switch; give true or false")
    if cfg.device in (None, "meta"):
        device = cfg.device or "null"
        raise LanternError(f"device={device} computes nothing; give auto, cpu or cuda, or dry_run=true for the memory")


def check_numbers(config: Mapping) -> None:
    """Raises LanternError for what is no number, or no whole one, where a constructor's annotations want that."""
    held = leaves(config)
    for name, value in held.items():
        part, _, key = name.rpartition(".")
        kinds = _kinds(str(held.get(f"{part}._target_")), key)
        is_fit = is_number(value) and (float in kinds or not value % 1)
        if isinstance(value, str | bool | float) and value != "???" and kinds and kinds <= {int, float} and not is_fit:
            raise LanternError(f"{name}={value} is no {'' if float in kinds else 'whole '}number; give one")


@lru_cache
def _kinds(target: str, argument: str) -> set[object]:
    """The types in an argument's annotation, without None; empty where the target or the argument is not found."""
    with suppress(Exception):
        annotation = signature(resolve_name(target)).parameters[argument].annotation
        return {*(get_args(annotation) or [annotation])} - {NoneType}
    return set()


def check_added(cfg: DictConfig, overrides: Sequence[str], groups: Iterable[str], command: str) -> None:
    """Raises LanternError for a key or a group of conf/ that `+` adds and that nothing reads: what is added to a config
    group (`groups`) or to a section with objects is checked by a constructor. A `++` is taken as it is."""
    named = {part for group in groups for part in re.split("[/.@]", group)}
    for override in overrides:
        section, is_setting, _ = override.split("=")[0].partition(".")
        if not section.startswith("+") or section.startswith("++") or "@" in section:
            continue
        section = section[1:]
        if not is_setting and section not in (*groups_of(command), "experiment") and (CONFIG_FOLDER / section).is_dir():
            raise LanternError(f"{override} adds a config group that {command}.py does not read; leave it out")
        builds = is_setting and "_target_" in OmegaConf.to_yaml(cfg.get(section) or {})
        is_selected = f"oc.select:{key_of(override)}," in OmegaConf.to_yaml(cfg)  # by a yaml that has a default for it
        if section not in named and not builds and not is_selected:
            raise LanternError(
                f"{override} adds a setting that nothing reads; {meant(section, groups_of(command))}see {command}.py "
                "--help for those there are"
            )


def for_the_points_that_have_them(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, in a multi-run with each setting of a group that is swept, such as drafter.checkpoint
    beside drafter=jacobi,eagle, as an axis of one value: Hydra would compose it with the group's default. GridsSweeper
    leaves it out where a point's choice lacks it."""
    if not {"-m", "--multirun"} & {*arguments} or any("hydra/sweeper=" in given for given in arguments):
        return [*arguments]
    swept = {key_of(given) for given in arguments if "," in given.partition("=")[2]}
    of_swept = [group_of(given) in swept and bool(SETTING.fullmatch(given)) for given in arguments]
    found = [as_axis(given) if is_one else given for given, is_one in zip(arguments, of_swept, strict=True)]
    return [*found, *(["hydra/sweeper=grids"] if any(of_swept) else [])]


def as_axis(given: str) -> str:
    """An override as an axis to sweep over, which it may be. Of choice(null) Hydra makes an error."""
    key, _, value = given.partition("=")
    if value == "null":
        return f"{given},null"  # GridsSweeper makes each point once
    with suppress(HydraException):
        if OverridesParser.create().parse_override(given).is_sweep_override():
            return given
    return f"{key}=choice({value})"


def key_of(override: str) -> str:
    """What an override sets, adds or deletes."""
    return override.partition("=")[0].lstrip("+~")


def group_of(override: str) -> str:
    """The config group or the section of a key."""
    return re.split("[.@]", key_of(override))[0]


def figure_of(figures: Mapping[str, object], name: str | None) -> float | None:
    """The figure that a sweeper optimises; None where none is named."""
    if name is None:
        return None
    known = {key: float(value) for key, value in figures.items() if is_number(value)}
    if name not in known:
        these = ", ".join(known) or "none"
        raise LanternError(f"optimized_metric={name} is no figure of this run; {meant(name, known)}give one of {these}")
    return known[name]
