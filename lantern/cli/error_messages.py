"""How the entry points fail: with one sentence and a non-zero exit instead of a traceback."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from traceback import clear_frames
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints
from unittest.mock import patch

from hydra._internal import utils as hydra_utils
from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from hydra.utils import get_object
from omegaconf import Container, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lantern.errors import FULL, LanternError, no_value, unknown_setting, unwritable
from lantern.runtime.home import CONFIG_FOLDER

Task = Callable[[DictConfig], object]
Command = Callable[[], object]
NAMELESS = "Config group override must be"  # Hydra's error for a config group that is set to no name
UNLOADABLE = re.compile(r"Error loading '([^']+)'")  # Hydra's ImportError for a name in a yaml
NO_OPTION = re.compile(r"\+*[\w/@.]+=(null|true|false|[-\d.]+)")
UNIONS = (Union, UnionType)
KINDS = {int: "a whole number", float: "a number", str: "a name or a path"}
ACCEPTED = {int: int, float: (int, float), str: str, Path: str}  # in a config, by a constructor's type


def in_one_sentence(task: Task) -> Task:
    """A decorator below @hydra.main: turns a LanternError, also one raised while Hydra builds an object, into the
    exception of which Hydra prints the message alone. It is raised, so that the other points of a sweep go on."""

    @wraps(task)
    def run(cfg: DictConfig) -> object:
        try:
            return task(cfg)
        except Exception as error:
            known = user_error(error, cfg) or unknown_key(cfg) or wrong_kind(cfg)
            _forget_locals(error)
            if known is None:
                raise
            raise CompactHydraException(f"error: {known}") from error

    return run


def _forget_locals(error: BaseException | None) -> None:
    """Of the frames that have ended: Hydra keeps the exceptions of a sweep, whose next point may need the memory of the
    model that they hold."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def without_hints(command: Command) -> Command:
    """A decorator above @hydra.main: an error that Hydra prints without a traceback, its own or one of in_one_sentence,
    is printed as one sentence, without Hydra's second one about HYDRA_FULL_ERROR."""

    @wraps(command)
    def run() -> object:
        with patch.object(hydra_utils, "run_and_report", partial(_reported, hydra_utils.run_and_report)):
            return command()

    return run


def _reported(report: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> object:
    """Hydra's `report` of work(): SystemExit passes through it unchanged."""

    def compact() -> object:
        try:
            return work()
        except CompactHydraException as error:
            if os.environ.get("HYDRA_FULL_ERROR") == "1":
                raise
            raise SystemExit(sentence(error)) from error
        except OSError as error:  # of Hydra's own files in the run folder
            if (known := user_error(error)) is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
                raise
            raise SystemExit(f"error: {known}") from error
        except ValueError as error:
            if not str(error).startswith(NAMELESS):
                raise
            raise SystemExit(f"error: {_no_option(sys.argv[1:])}") from error

    return report(compact)


def _no_option(arguments: Sequence[str]) -> str:
    """The sentence for NAMELESS, which names no setting: of what may be one, the groups of conf/, else all groups."""
    given = {part: part.split("=")[0].lstrip("+").partition("@")[0] for part in arguments if NO_OPTION.fullmatch(part)}
    given = {part: group for part, group in given.items() if "." not in group}  # which is a group's setting
    named = [part for part, group in given.items() if (CONFIG_FOLDER / group).is_dir()] or list(given)
    switch = ", or tracking.mode=disabled to switch it off" if any("tracking=" in part for part in named) else ""
    return f"{', '.join(named)} names no option of its group; give one that --help lists{switch}"


def sentence(error: CompactHydraException) -> str:
    """The error in one line, with what OmegaConf says of its cause."""
    message = str(error).split("Config search path:")[0].strip()
    said = [message.replace(":\n\t", ": ").replace("\n\t", ", ").replace("\n\n", "; ")]
    if isinstance(error.__cause__, OmegaConfBaseException):
        said += str(error.__cause__).splitlines()[:1]
    parts = [" ".join(part.split()).rstrip(".") for part in said]
    return ("" if parts[0].startswith("error: ") else "error: ") + "; ".join(parts)


def user_error(error: BaseException, cfg: DictConfig | None = None) -> LanternError | None:
    """The LanternError behind an exception, however often it was wrapped (Hydra wraps what constructors raise), or one
    for missing required settings, full disks and names that cannot be imported, which libraries raise. None for other
    exceptions. cfg: of the whole command."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, LanternError):
        if isinstance(seen, OSError) and seen.errno in FULL:
            return unwritable(seen.filename or "to the disk", seen)
        if isinstance(seen, MissingMandatoryValue):
            return LanternError(no_value(_whole_name(seen.full_key, cfg)))
        if isinstance(seen, ImportError) and (unloadable := UNLOADABLE.match(str(seen))):
            return _not_imported(unloadable[1], seen.__cause__)
        seen = seen.__cause__ or seen.__context__
    return seen


def _not_imported(name: str, cause: BaseException | None) -> LanternError:
    """The error for a `_target_`, or a `path` of get_method, that Hydra could not load. cause: of its own error."""
    module = name.partition(".")[0]
    if isinstance(cause, ModuleNotFoundError) and cause.name == module:
        return LanternError(f"{module} is not on PYTHONPATH; run with PYTHONPATH=<its folder>")
    reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
    return LanternError(f"{name} cannot be imported ({reason}); mend its module, or the name")


def _whole_name(key: str, cfg: DictConfig | None) -> str:
    """The name on the command line of a setting without a value; `key` is relative to the part that is being built. Of
    several such settings the first: each has to be given."""
    names = [] if cfg is None else list(_missing(cfg))
    return key if key in names else next((name for name in names if name.endswith(f".{key}")), key)


def _missing(cfg: Container) -> Iterator[str]:
    """Names of the settings that must be given and are not. OmegaConf.missing_keys also resolves interpolations, which
    may raise."""
    for key in cfg if OmegaConf.is_dict(cfg) else range(len(cfg)):
        if OmegaConf.is_missing(cfg, key):
            yield cfg._get_full_key(key)
        elif _is_plain(cfg, key) and isinstance(part := cfg[key], Container):
            yield from _missing(part)


def wrong_kind(cfg: DictConfig) -> LanternError | None:
    """Names a setting of another kind than the constructor takes. To be called after a failure only: it imports all
    targets of the config."""
    for node in _targets(cfg):
        for name, wanted in _hints(node["_target_"]).items():
            if name not in node or not _is_plain(node, name):
                continue
            value, kind = node[name], KINDS.get(wanted[0], "a value")
            if value is None and NoneType not in wanted:
                return LanternError(f"{node._get_full_key(name)}=null is not {kind}; leave it out for the default")
            is_made = OmegaConf.is_dict(value) and "_target_" in value  # of a kind that only making it tells
            if value is not None and not is_made and not _fits(value, wanted):
                return LanternError(f"{node._get_full_key(name)}={value} is not {kind}")
    return None


def _fits(value: object, wanted: Sequence[object]) -> bool:
    """Whether a value is of one of these types, as far as that can be told."""
    return any(isinstance(value, ACCEPTED.get(kind, object)) for kind in wanted if kind is not NoneType)


def unknown_key(cfg: DictConfig) -> LanternError | None:
    """Names a setting that its constructor does not have. To be called after a failure only, as wrong_kind."""
    for node in _targets(cfg):
        names = [str(name) for name in node if not str(name).startswith("_")]
        taken = _parameters(node["_target_"])
        if taken is None or not (unknown := [name for name in names if name not in taken]):
            continue
        setting = f"{node._get_full_key(unknown[0])}={node[unknown[0]]}"
        known = [name for name in taken if name in names or not node.get("_partial_")]
        return LanternError(unknown_setting(setting, node["_target_"].rsplit(".", 1)[-1], known))
    return None


def _parameters(target: str) -> list[str] | None:
    """Names of a target's arguments; None if it takes any."""
    try:
        found = signature(get_object(target)).parameters
    except Exception:  # the first failure is the one to report
        return None
    return None if any(one.kind is Parameter.VAR_KEYWORD for one in found.values()) else list(found)


def _targets(cfg: Container) -> Iterator[DictConfig]:
    """The nodes of a config with a _target_, the outer ones first."""
    is_dict = OmegaConf.is_dict(cfg)
    if is_dict and "_target_" in cfg:
        yield cfg
    for key in cfg if is_dict else range(len(cfg)):
        if _is_plain(cfg, key) and isinstance(part := cfg[key], Container):
            yield from _targets(part)


def _is_plain(cfg: Container, key: str | int) -> bool:
    """Whether a key has a value of its own: neither missing nor an interpolation."""
    return not OmegaConf.is_missing(cfg, key) and not OmegaConf.is_interpolation(cfg, key)


def _hints(target: str) -> dict[str, list[object]]:
    """Types of a target's arguments by name: of a union all, None last."""
    try:
        made = get_object(target)
        hints = get_type_hints(made.__init__ if isinstance(made, type) else made)
    except Exception:  # the first failure is the one to report
        return {}
    kinds = {name: get_args(hint) if get_origin(hint) in UNIONS else (hint,) for name, hint in hints.items()}
    return {name: sorted(found, key=lambda kind: kind is NoneType) for name, found in kinds.items()}


class WritableFolder(Callback):
    """Ends the program before any work if its run folder cannot be written."""

    def on_run_start(self, config: DictConfig, **_: object) -> None:
        _make(config.hydra.run.dir)

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        _make(config.hydra.sweep.dir)


def _make(folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = Path(folder) / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)  # another process of the same run may have removed it
    except OSError as error:
        # SystemExit, because Hydra turns any other exception of a callback into a warning
        raise SystemExit(
            f"error: cannot write to {folder} ({error.strerror}); choose another with paths.runs=…, or by hydra.run.dir"
        ) from error
