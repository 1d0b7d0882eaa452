"""Files replaced at once: readers see the old or new content, never a part; folders of one writer at a time."""

import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from lantern.errors import LanternError, writing

log = logging.getLogger(__name__)
WRITING = ".writing-"  # begins the names of folders in which files are made
EXPORTED = "exported.json"  # of a training: which step its weights are of, with the figures


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Has `write` write such a file aside, flushes it to disk and renames it, or leaves nothing; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=WRITING) as folder:
        made = Path(folder) / path.name
        write(made)
        made.chmod(0o644)  # safetensors writes with mode 0600
        with open(made, "rb") as file:
            os.fsync(file.fileno())
        os.replace(made, path)


def replace_text(path: str | Path, text: str) -> None:
    """Atomically writes `text` to a file, its folder created."""
    path = Path(path)
    with writing(path):
        replace_file(path, lambda file: file.write_text(text, "utf-8"))


def rename_aside(path: Path) -> Path:
    """Renames a file or folder to the first of name-1, name-2, … that is free, which is returned."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
    return path.rename(next(name for name in names if not name.exists()))


def bytes_of(path: Path, folder: Path | None = None) -> bytes:
    """The content of a file of a folder, by default its own, which someone else may have filled. OSError for a link or
    `..` that leads out of the folder, since what is read may end up in a page that is shared."""
    if not path.resolve().is_relative_to((folder or path.parent).resolve()):
        raise OSError(f"{path} leads out of the folder {folder or path.parent}")
    return path.read_bytes()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds; empty without the file and, with a warning, where the file is damaged."""
    try:
        found = json.loads(bytes_of(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        log.warning("%s is damaged and was left out; it is written anew when its run is started again", path)
        return {}
    return found


def is_readable(file: str) -> bool:
    """Whether there is such a file and this user may read it."""
    return os.path.isfile(file) and os.access(file, os.R_OK)


def file_stats(files: Iterable[str]) -> list[tuple[int, int] | None]:
    """Size and time of each, so that a changed file is noticed without reading it; None where it cannot be read."""
    stats = [os.stat(file) if is_readable(file) else None for file in files]
    return [stat and (stat.st_size, stat.st_mtime_ns) for stat in stats]


def is_file(path: Path) -> bool:
    """Path.is_file, but False where that raises OSError: for a text too long for a path, in a folder without access."""
    try:
        return path.is_file()
    except OSError:
        return False


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Locks the folder; LanternError while another process holds its lock, which the system releases when it ends.
    Removes what killed processes had begun to write there and in its checkpoints."""
    with writing(folder):
        file = open(folder / ".running", "w", opener=unlinked)  # noqa: SIM115
    with file:
        try:
            is_locked = lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LanternError(
                f"{folder} is in use by another run; wait for its end, or give another folder by hydra.run.dir=…"
            ) from error
        if is_locked:
            for place in (folder, folder / "checkpoints"):
                for begun in place.glob(f"{WRITING}*"):
                    shutil.rmtree(begun, ignore_errors=True)
        yield


def unlinked(path: str | Path, flags: int) -> int:
    """The opener of files of a run folder that are written in place. OSError for a link: a folder that came from
    elsewhere would have a run write to any file of this machine."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def lock(file: IO[str], how: int = fcntl.LOCK_EX) -> bool:
    """Locks an open file until it is closed or this process ends; False on a file system without locks.
    BlockingIOError where another process holds it and `how` says not to wait."""
    try:
        fcntl.flock(file, how)
        return True
    except BlockingIOError:
        raise
    except OSError as error:
        log.info("%s cannot be locked (%s)", file.name, error)
        return False
