"""A run folder: its request, its records, and those of the points or shards beside it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lantern.errors import LanternError, unwritable
from lantern.evaluation.records import RECORDS, read_provenance
from lantern.evaluation.rows import encode, read_summary
from lantern.identity import MAKING, PROVENANCE, machine, without_device_index, without_metrics, write_provenance
from lantern.runtime.files import read_object, replace_text

log = logging.getLogger(__name__)
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
        """The records whose images are not made again: this folder's, those of its points or shards, and of the AR
        images they share."""
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

    def begin(self, config: dict[str, Any], hashes: Mapping[str, str | None]) -> None:
        """Removes the mark of an earlier request, whose files this run replaces one by one; writes its provenance."""
        if self.sweep is None and config["shards"] == 1:
            self._check_shards(config, hashes)
        try:
            (self.path / FINISHED).unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(self.path / FINISHED, error) from error
        write_provenance(self.path, config, hashes)

    def finish(self, request: str, overrides: Sequence[str] = ()) -> None:
        """Marks a request as finished, after everything else is written. overrides: of the command, for reproduce=."""
        replace_text(self.path / FINISHED, encode({"request": request, "overrides": [*overrides]}) + "\n")

    def _check_shards(self, config: Mapping[str, Any], hashes: Mapping[str, str | None]) -> None:
        """Raises LanternError if a shard below was made with other code or weights (`hashes`), or all shards with other
        settings: their images would be made again without notice. Warns where no shard was timed on a machine like
        this one."""
        shards = {path.parent: read_provenance(path.parent) for path in sorted(self.path.glob(f"*/{PROVENANCE}"))}
        shards = {place: made for place, made in shards.items() if made and made["config"].get("shards", 1) != 1}
        now, others = without_device_index(config), {}
        for place, made in shards.items():
            before = without_device_index(made["config"])
            settings = [name for name in MAKING if before.get(name) != now.get(name)]
            read = [name for name, value in without_metrics(hashes).items() if made["hashes"].get(name) != value]
            if settings or read:
                others[place] = settings or read
            if (read and not settings) or len(others) == len(shards):
                raise LanternError(
                    f"{place} was made with other {', '.join(others[place])} than this run has; measure it with its "
                    "own, or move it out of the folder"
                )
        here = tuple(machine(config).values())
        timed = {(made["device"], made["threads"]) for made in shards.values()}
        if timed and here not in timed and config.get("speed", {}).get("num_prompts"):
            device, threads = min(timed)
            log.warning(
                f"the shards in {self.path} timed on {device} with {threads} threads, this is {here[0]} with "
                f"{here[1]}: their images are timed again here; to use their times, measure on such a machine with "
                f"OMP_NUM_THREADS={threads}"
            )
