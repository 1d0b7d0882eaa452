"""How the entry points fail: with one sentence and a non-zero exit instead of a traceback."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from traceback import clear_frames

from hydra.errors import CompactHydraException, InstantiationException
from hydra.experimental.callback import Callback
from omegaconf import Container, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from lantern.cli.hydra_private import reporting_by
from lantern.errors import FULL, LanternError, no_value, unwritable
from lantern.runtime.home import CONFIG_FOLDER

Task = Callable[[DictConfig], object]
Command = Callable[[], object]
NAMELESS = "Config group override must be"  # Hydra's error for a config group that is set to no name
UNLOADABLE = re.compile(r"Error loading '([^']+)'")  # Hydra's ImportError for a name in a yaml
NO_OPTION = re.compile(r"\+*[\w/@.]+=(null|true|false|[-\d.]+)")


def in_one_sentence(task: Task) -> Task:
    """A decorator below @hydra.main: turns a LanternError, also one raised while Hydra builds an object, into the
    exception of which Hydra prints the message alone. It is raised, so that the other points of a sweep go on."""

    @wraps(task)
    def run(cfg: DictConfig) -> object:
        try:
            return task(cfg)
        except Exception as error:
            known = user_error(error, cfg)
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
        with reporting_by(_report):
            return command()

    return run


def _report(report: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> object:
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
    for missing required settings, full disks, names that cannot be imported and settings that a constructor refuses,
    which libraries raise. None for other exceptions. cfg: of the whole command."""
    seen: BaseException | None = error
    part = None
    while seen is not None and not isinstance(seen, LanternError):
        if isinstance(seen, OSError) and seen.errno in FULL:
            return unwritable(seen.filename or "to the disk", seen)
        if isinstance(seen, MissingMandatoryValue):
            return LanternError(no_value(_whole_name(seen.full_key, cfg)))
        if isinstance(seen, ImportError) and (unloadable := UNLOADABLE.match(str(seen))):
            return _not_imported(unloadable[1], seen.__cause__)
        if isinstance(seen, InstantiationException) and cfg is not None:
            part = _not_built(seen, cfg) or part  # of the innermost
        seen = seen.__cause__ or seen.__context__
    return seen or part


def _not_imported(name: str, cause: BaseException | None) -> LanternError:
    """The error for a `_target_`, or a `path` of get_method, that Hydra could not load. cause: of its own error."""
    module = name.partition(".")[0]
    if isinstance(cause, ModuleNotFoundError) and cause.name == module:
        return LanternError(f"{module} is not on PYTHONPATH; run with PYTHONPATH=<its folder>")
    reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
    return LanternError(f"{name} cannot be imported ({reason}); fix its module, or the name")


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


def _not_built(error: InstantiationException, cfg: DictConfig) -> LanternError | None:
    """The error for a part whose constructor refuses its settings with an exception of Python's, such as a word in the
    place of a number; None where Hydra does not say which part."""
    key = str(error).partition("full_key: ")[2]
    node = OmegaConf.select(cfg, key) if key else None
    if not isinstance(node, DictConfig) or error.__cause__ is None:
        return None
    reason = " ".join(str(error.__cause__).split())
    given = [str(name) for name in node if _is_plain(node, name) and not isinstance(node[name], Container)]
    named = [name for name in given if f"'{name}'" in reason] or [name for name in given if not name.startswith("_")]
    settings = ", ".join(f"{key}.{name}={node[name]}" for name in named)
    return LanternError(f"{settings or key}: {reason}; give what {node.get('_target_')} takes, or leave it out")


def _is_plain(cfg: Container, key: str | int) -> bool:
    """Whether a key has a value of its own: neither missing nor an interpolation."""
    return not OmegaConf.is_missing(cfg, key) and not OmegaConf.is_interpolation(cfg, key)


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
