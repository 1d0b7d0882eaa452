"""The errors that a user can act on. Entry points print them as one sentence, without a traceback."""

import errno
import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pickle import UnpicklingError
from types import TracebackType
from typing import ClassVar, TypeGuard

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
LARGEST = sys.float_info.max


class LanternError(ValueError):
    """A value given by the user does not work; the message names it and the remedy."""


class CheckpointError(LanternError):
    """A weights file is missing, unreadable, unsafe or made for another model."""


def end_in_one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The excepthook of commands: Ctrl-C, which may come while any library is loaded, has no traceback."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    logging.disable()  # torch, half loaded, would tell its statistics
    print("\n" * sys.stderr.isatty() + "ended by Ctrl-C", file=sys.stderr, flush=True)  # below ^C and any bar


def ctrl_c(*, ends_at_once: bool) -> None:
    """Until a command's work begins, Ctrl-C ends the process: libraries that are being loaded may swallow an
    exception. A background job of a shell, which ignores Ctrl-C, goes on doing so."""
    handlers = signal.default_int_handler, _end
    if signal.getsignal(signal.SIGINT) in handlers:
        signal.signal(signal.SIGINT, handlers[ends_at_once])


def _end(*_: object) -> None:
    end_in_one_line(KeyboardInterrupt, KeyboardInterrupt(), None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


@contextmanager
def explaining(what: str, remedy: str, kind: type[LanternError] = CheckpointError) -> Iterator[None]:
    """Within it, whatever a library raises becomes one sentence: what has failed, the library's reason, the remedy.
    Readers of foreign files and clients of servers raise many kinds of errors."""
    try:
        yield
    except LanternError:
        raise
    except Exception as error:
        reason = "" if isinstance(error, UnpicklingError) else f" ({first_line(error)})"  # torch's: how to run the code
        raise kind(f"{what}{reason}; {remedy}") from error


def unknown_setting(setting: str, part: str, known: Sequence[str]) -> str:
    """The sentence for a setting that a part does not have. known: those it has."""
    taken = f"takes {', '.join(known)}" if known else "has no settings"
    return f"{setting} is unknown to {part}, which {taken}; {meant(setting, known)}leave it out"


def meant(word: str, known: Iterable[str]) -> str:
    """The question after a mistyped word, or nothing where none of those known is like it."""
    alike = get_close_matches(word.rpartition(".")[2], known, 1)
    return f"did you mean {alike[0]}? Else " if alike else ""


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number; true and false are none, though Python counts them among the integers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, be it infinite or nan; true and false are none."""
    return isinstance(value, float) or is_whole(value)


def first_line(error: BaseException) -> str:
    """Of what an error says, without a full stop; its kind where it says nothing."""
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return next(lines, type(error).__name__).rstrip(".")


def check_whole(group: str, least: int | None = None, most: float = LARGEST, /, **settings: object) -> None:
    """LanternError for what is no whole number within these limits. group: "" for settings of the whole command."""
    for name, value in settings.items():
        if not is_whole(value):
            shown = "null" if value is None else value
            setting = f"{group}.{name}".lstrip(".")
            raise LanternError(f"{setting}={shown} is no whole number; give one, or leave it out for the default")
        if least is not None:
            check_least(group, least, most, **{name: value})


def check_least(group: str, least: float, most: float = LARGEST, /, **settings: float | None) -> None:
    """LanternError for settings outside of these limits and for what is no number; None is left to its default."""
    for name, value in settings.items():
        if value is not None and not (is_number(value) and least <= value <= most):
            limits = f"a finite number, {least:g} at least" if most == LARGEST else f"{least:g} to {most:.10g}"
            wrong = "is out of range" if is_number(value) else "is no number"
            setting = f"{group}.{name}".lstrip(".")
            raise LanternError(f"{setting}={value} {wrong}; give {limits}")


def unwritable(what: object, error: OSError) -> LanternError:
    """The error for a file or folder `what` that cannot be written; the remedy depends on whether the disk is full."""
    remedy = "choose a folder you may write to"
    if error.errno in FULL:
        remedy = "make room and start again in the same folder: what was finished is kept"
    return LanternError(f"cannot write {what} ({error.strerror}); {remedy}")


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Within it, an OSError becomes the error of `unwritable`."""
    try:
        yield
    except OSError as error:
        raise unwritable(what, error) from error


class FirstWarning:
    """Logs the first warning it is given: a training reads its captions in every epoch."""

    last: ClassVar[str] = ""  # that any was given, logged or not

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._is_told = log, False

    def __call__(self, text: str, *values: object) -> None:
        if not self._is_told:
            self._log.warning(text, *values)
        self._is_told, FirstWarning.last = True, text % values
