"""The frame of the entry points, and how they fail: with one sentence and a non-zero exit instead of a traceback."""

import atexit
import gc
import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from traceback import clear_frames

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException, MissingConfigException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, errors, open_dict, read_write

from lantern.cli.composing import VERSION_BASE, expand_home, reporting_by
from lantern.cli.settings import check_added, for_the_points_that_have_them
from lantern.errors import FULL, LanternError, end_in_one_line, first_line, meant, unknown_setting, unwritable
from lantern.runtime.files import unlinked
from lantern.runtime.home import CONFIG_FOLDER, export_paths, in_home
from lantern.runtime.overrides import as_typed, override
from lantern.runtime.progress_line import ProgressLine

Task = Callable[[DictConfig], object]
Command = Callable[[], object]
at_end: list[Callable[[], None]] = []  # called when the command ends, whether or not it has failed
UNLOADABLE = re.compile(r"Error loading '([^']+)'")  # Hydra's ImportError for a name in a yaml
BUILT = re.compile(r"full_key: (\S+)")  # in Hydra's error for what a constructor raises
EXTRAS = {"hydra/sweeper/optuna": "optuna"}  # by the options that they bring
EXTRAS |= dict.fromkeys(("hydra/launcher/submitit_local", "hydra/launcher/submitit_slurm"), "slurm")
NAMELESS = "Config group override must be"  # Hydra's error for a config group that is set to no name
NO_OPTION = "a config group that is set to null, true or a number names no option; give one that --help lists"


def command(config_name: str, *groups: str) -> Callable[[Task], Command]:
    """A decorator: the command line that reads a yaml of conf/, and settings of `groups`, and does a task by it."""
    main = hydra.main(version_base=VERSION_BASE, config_path=str(CONFIG_FOLDER), config_name=config_name)

    def decorated(task: Task) -> Command:
        @wraps(task)
        def checked(cfg: DictConfig) -> object:
            run = HydraConfig.get()
            check_added(cfg, run.overrides.task, {*run.runtime.choices, *groups}, config_name)
            return task(cfg)

        return without_hints(main(in_one_sentence(checked)))

    return decorated


def in_one_sentence(task: Task) -> Task:
    """A decorator below @hydra.main: turns a LanternError, also one raised while Hydra builds an object, into an
    exception for which Hydra prints only the message. Because it is raised, the other points of a sweep go on."""

    @wraps(task)
    def run(cfg: DictConfig) -> object:
        try:
            prepare_process()  # here too: a launcher may run it in a process of its own
            expand_home(cfg)
            return task(cfg)
        except Exception as error:
            known = user_error(error, cfg)
            _forget_locals(error)
            if known is None:
                raise
            raise CompactHydraException(f"error: {known}") from error

    return run


def _forget_locals(error: BaseException | None) -> None:
    """Of ended frames: Hydra keeps a sweep's exceptions, and its next point may need the memory that they hold."""
    seen = set()  # two errors may name each other as their cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def without_hints(command: Command) -> Command:
    """A decorator above @hydra.main: an error that Hydra prints without a traceback, its own or one of in_one_sentence,
    is printed as one sentence, without Hydra's second one about HYDRA_FULL_ERROR."""

    @wraps(command)
    def run() -> object:
        prepare_process()
        sys.argv[1:] = for_the_points_that_have_them([*map(as_typed, sys.argv[1:])])
        try:
            with reporting_by(_report):
                return command()
        except BrokenPipeError:  # of `--help | head`, which Hydra prints outside its report
            sys.exit(1)
        finally:
            while at_end:
                at_end.pop()()

    return run


def starting_line() -> ProgressLine:
    """Shown to the command's end at most. Not in train, which a queued job is pickled with, and all that it names."""
    line = ProgressLine("starting")
    at_end.append(line.close)
    line.show(0.0, "loading libraries", None)
    return line


def prepare_process() -> None:
    """What a command changes of its process, which is its own. A character that the terminal lacks is printed as ?."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.excepthook = end_in_one_line
    atexit.register(gc.freeze)  # else Python searches all objects of the libraries for garbage at its end, for seconds
    export_paths()


def _report(report: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> object:
    """Hydra's `report` of work(): SystemExit passes through it unchanged."""

    def compact() -> object:
        try:
            return work()
        except (CompactHydraException, OSError, ValueError) as error:  # OSError: of Hydra's own files in the run folder
            said = user_error(error)
            if said is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
                raise
            raise SystemExit(f"error: {said}") from error

    return report(compact)


def sentence(error: CompactHydraException) -> str:
    """The error in one line, with what OmegaConf says of its cause."""
    cause = error.__cause__
    if isinstance(cause, errors.ConfigKeyError | errors.ConfigAttributeError):
        setting, known = str(cause.full_key), cause.parent_node
        taken = [key for key in map(str, known) if key[0] != "_"] if isinstance(known, DictConfig) else []
        if part := setting.rpartition(".")[0]:
            return f"{unknown_setting(setting, part, taken)}, or begin with + if its class takes it"
        return f"{setting} is unknown to this command; {meant(setting, taken)}see --help for all it takes"
    if isinstance(error, MissingConfigException):
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        if extra := EXTRAS.get(f"{group}/{option}"):
            return f"{group}/{option} is not installed; install it by pip install '.[{extra}]' in Lantern's folder"
        known = error.options or sorted(file.stem for file in (CONFIG_FOLDER / group).glob("*.yaml"))  # of a list
        if group and known:
            where = str(error).partition("Could not")[0]  # "In 'evaluate': "
            name = group.removesuffix("/training")  # of kinds of drafters that train.py knows
            other = "; a window's network is trained by task=window" if name != group else ""
            return f"{where}{name}={option} is no option; {meant(option, known)}give one of {', '.join(known)}{other}"
    message = str(error).split("Config search path:")[0].strip().removeprefix("error: ")
    said = [message.replace(":\n\t", ": ").replace("\n\t", ", ").replace("\n\n", "; ")]
    if isinstance(error.__cause__, errors.OmegaConfBaseException):
        said += [line for line in str(error.__cause__).splitlines()[:1] if line not in message]
    return "; ".join(" ".join(part.split()).rstrip(".") for part in said)


def user_error(error: BaseException, cfg: DictConfig | None = None) -> LanternError | None:
    """The LanternError behind an exception, however often it was wrapped (Hydra wraps what constructors raise), or one
    for settings that Hydra refuses, names that cannot be imported, full disks, and else what Hydra itself reports in a
    sentence. None for other exceptions. cfg: of the whole command."""
    if isinstance(error, CompactHydraException) and str(error).startswith("error: "):  # of in_one_sentence
        return LanternError(str(error).removeprefix("error: "))
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, LanternError):
        if isinstance(seen, OSError) and seen.errno in FULL:
            return unwritable(seen.filename or "to the disk", seen)
        if isinstance(seen, BrokenPipeError):  # of `| head`
            return LanternError("what reads this output has ended; started again in the same folder the run goes on")
        if isinstance(seen, ValueError) and str(seen).startswith(NAMELESS):
            return LanternError(NO_OPTION)
        if isinstance(seen, errors.MissingMandatoryValue):
            name = _whole_name(seen.full_key, cfg)
            return LanternError(f"{name} has no value; give {name}=…")
        if isinstance(seen, errors.InterpolationResolutionError | errors.UnsupportedInterpolationType):
            said = ": ".join(filter(None, (seen.full_key, str(seen).splitlines()[0])))
            return LanternError(f"{said}; write \\${{…}} for a text that has one")
        if isinstance(seen, ImportError) and (unloadable := UNLOADABLE.match(str(seen))):
            return _not_imported(unloadable[1], seen.__cause__)
        seen = seen.__cause__ or seen.__context__
    known = seen or _unfit(error)
    return LanternError(sentence(error)) if known is None and isinstance(error, CompactHydraException) else known


def _unfit(error: BaseException) -> LanternError | None:
    """The error for settings of the command line that a constructor of another library cannot use."""
    cause, part = error.__cause__, BUILT.search(str(error))
    if not isinstance(cause, TypeError | ValueError | AttributeError) or not part or not HydraConfig.initialized():
        return None
    given = [text.lstrip("+") for text in HydraConfig.get().overrides.task]
    own = [text for text in given if text.startswith(f"{part[1]}.")]
    return LanternError(f"{', '.join(own)}: no such value can be used ({first_line(cause)})") if own else None


def _not_imported(name: str, cause: BaseException | None) -> LanternError:
    """The error for a `_target_`, or a `path` of get_method, that Hydra could not load. cause: of its own error."""
    if isinstance(cause, ModuleNotFoundError) and str(cause.name).startswith("torch_fidelity"):
        return LanternError(f"{name} needs torch-fidelity; install it by pip install '.[metrics]' in Lantern's folder")
    reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
    return LanternError(f"{name} cannot be imported ({reason}); correct it, or put its folder on PYTHONPATH")


def _whole_name(key: str, cfg: DictConfig | None) -> str:
    """The name on the command line of a setting without a value; `key` is relative to the part that is being built."""
    names = [] if cfg is None else sorted(OmegaConf.missing_keys(cfg))
    return key if key in names else next((name for name in names if name.endswith(f".{key}")), key)


class WritableFolder(Callback):
    """Ends the program before any work if its run folder cannot be written. A folder in ~ is that of the home."""

    def on_run_start(self, config: DictConfig, **_: object) -> None:
        _make(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        _make(config, "sweep")


def _make(config: DictConfig, kind: str) -> None:
    given = str(config.hydra[kind].dir or "")
    if not given.strip():
        raise SystemExit(f"error: hydra.{kind}.dir={given} names no folder; give one")
    if (folder := in_home(given)) != given:
        with read_write(config), open_dict(config):
            config.hydra[kind].dir = folder
            config.hydra.overrides.hydra.append(override(f"hydra.{kind}.dir", folder))  # which each point reads anew
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = Path(folder) / ".writable"
        os.close(unlinked(probe, os.O_WRONLY | os.O_CREAT))
        probe.unlink(missing_ok=True)  # another process of the same run may have removed it
        written = (*Path(folder).iterdir(), *Path(folder).glob(".hydra/*"))  # also by Hydra and Lightning
        if link := next((path for path in written if path.is_symlink() and not path.is_dir()), None):
            raise SystemExit(f"error: {link} is a link, through which a run would write elsewhere; remove it")
    except OSError as error:
        # SystemExit, because Hydra turns any other exception of a callback into a warning
        raise SystemExit(f"error: {unwritable(folder, error)}, by paths.runs=… or hydra.run.dir=…") from error
