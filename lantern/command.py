"""How the entry points fail: with one sentence and a non-zero exit instead of a traceback."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path

from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue

from lantern.errors import FULL, LanternError, unwritable

Task = Callable[[DictConfig], object]


def in_one_sentence(task: Task) -> Task:
    """Below @hydra.main: turns a LanternError, also one raised while Hydra builds an object, into the exception that
    Hydra prints as its message alone. Raised and not exited with, so that the other points of a sweep go on."""

    @wraps(task)
    def run(cfg: DictConfig) -> object:
        try:
            return task(cfg)
        except Exception as error:
            if (known := user_error(error)) is None:
                raise
            raise CompactHydraException(f"error: {known}") from error

    return run


def user_error(error: BaseException) -> LanternError | None:
    """The LanternError behind an exception, however often it was wrapped (Hydra wraps what constructors raise), or one
    for a setting without a value, and for a disk that takes no more, which any library may meet."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, LanternError):
        if isinstance(seen, OSError) and seen.errno in FULL:
            return unwritable(seen.filename or "to the disk", seen)
        if isinstance(seen, MissingMandatoryValue):
            return LanternError(f"{seen.full_key} has no value; give {seen.full_key}=…")
        seen = seen.__cause__ or seen.__context__
    return seen


class WritableFolder(Callback):
    """Ends the program before any work if its run folder cannot be made."""

    def on_run_start(self, config: DictConfig, **_: object) -> None:
        _make(config.hydra.run.dir)

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        _make(config.hydra.sweep.dir)


def _make(folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = Path(folder) / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        # SystemExit, because Hydra turns any other exception of a callback into a warning
        raise SystemExit(
            f"error: cannot write to {folder} ({error.strerror}); choose another with paths.runs=…, or by hydra.run.dir"
        ) from error
