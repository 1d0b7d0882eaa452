"""Files that are replaced whole: readers see the old or the new content, never a part."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from lantern.errors import unwritable


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file of this name elsewhere and puts it in place whole; a failed one is left nowhere."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        write(Path(folder) / path.name)
        (Path(folder) / path.name).chmod(0o644)  # safetensors writes for the owner alone
        os.replace(Path(folder) / path.name, path)


def replace_text(path: str | Path, text: str) -> None:
    """Writes a whole file so that readers see the old or the new one, never a part. LanternError if it cannot."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda file: _write_down(file, text))
    except OSError as error:
        raise unwritable(path, error) from error


def _write_down(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
