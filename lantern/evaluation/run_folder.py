"""A run folder: its request, its records, and those of the points or shards beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lantern.errors import writing
from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import encode, read_summary
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.provenance import machine, read_provenance, write_provenance

FINISHED = "finished.json"


@dataclass(frozen=True)
class EvaluationFolder:
    """Where a run's rows, records and images are kept."""

    path: Path
    sweep: Path | None = None  # the folder of all its points, which share the images of plain decoding

    @property
    def baselines(self) -> Path:
        """Images of plain decoding are kept in its folders, named by a hash of what determines them."""
        return (self.sweep or self.path) / "ar"

    @cached_property
    def known(self) -> list[Path]:
        """Those whose images are not made again: of this folder, its points or shards, and their AR images."""
        home = self.sweep or self.path
        return [path for pattern in ("", "*/", "*/*/") for path in sorted(home.glob(f"{pattern}{RECORDS}"))]

    def is_finished(self, request: str) -> bool:
        """Whether it holds the finished run of this request."""
        return read_object(self.path / FINISHED).get("request") == request and bool(read_summary(self.path))

    def place_note(self, config: Mapping[str, Any]) -> str:
        """What to add to "is finished" where the run was made on a machine unlike this one, empty on one like it."""
        made, here = read_provenance(self.path), machine(config)
        if not made or all(made.get(name) == value for name, value in here.items()):
            return ""
        return (
            f", measured on {made.get('device')} with {made.get('threads')} threads, which is not this machine "
            f"({here['device']}, {here['threads']} threads): measure here in another folder, hydra.run.dir=…"
        )

    def begin(self, config: dict[str, Any], hashes: Mapping[str, str | None], command: str | None = None) -> None:
        """Removes the mark of an earlier request, whose files this run replaces one by one; writes its provenance."""
        with writing(self.path / FINISHED):
            (self.path / FINISHED).unlink(missing_ok=True)
        write_provenance(self.path, config, hashes, command)

    def finish(self, request: str) -> None:
        """Marks a request as finished, after everything else is written."""
        replace_text(self.path / FINISHED, encode({"request": request}) + "\n")
