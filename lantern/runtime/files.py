"""Atomic replacement of files: readers see the old or the new content, never a part."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from lantern.errors import unwritable


def replace_file(path: Path, write: Callable[[Path], object], kept: Path | None = None) -> None:
    """Calls `write` with a temporary path of the same file name, then renames it to `path`; leaves nothing if that
    fails. `kept`: a name for the file that was at `path`."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        write(Path(folder) / path.name)
        (Path(folder) / path.name).chmod(0o644)  # safetensors writes with mode 0600
        if kept is not None and path.exists():
            os.replace(path, kept)
        os.replace(Path(folder) / path.name, path)


def replace_text(path: str | Path, text: str) -> None:
    """Atomically writes `text` to a file, its folder created, flushed to disk. LanternError if it cannot."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda file: _write_flushed(file, text))
    except OSError as error:
        raise unwritable(path, error) from error


def _write_flushed(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
