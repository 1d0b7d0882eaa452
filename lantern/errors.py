"""The errors that a user can act on. Entry points print them as one sentence, without a traceback."""

import errno
from collections.abc import Sequence

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class LanternError(ValueError):
    """A value given by the user does not work; the message names it and the remedy."""


class CheckpointError(LanternError):
    """A weights file is missing, unreadable, unsafe or made for another model."""


def unknown_setting(setting: str, part: str, known: Sequence[str]) -> str:
    """The sentence for a setting that a part does not have. known: those it has."""
    taken = f"takes {', '.join(known)}" if known else "has no settings"
    return f"{setting} is unknown to {part}, which {taken}; leave it out"


def unwritable(what: object, error: OSError) -> LanternError:
    """The error for a file or folder `what` that cannot be written; the remedy depends on whether the disk is full."""
    remedy = "choose a folder you may write to"
    if error.errno in FULL:
        remedy = "make room and start again in the same folder: what was finished is kept"
    return LanternError(f"cannot write {what} ({error.strerror}); {remedy}")
