"""Captioned images that stay in the files they came in: a list of where each one lies is made once and kept, with what
is wrong with those that cannot be used; pixels are read at each access."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Value

from lantern.data.cache import MakeRows, cached_rows, fingerprint
from lantern.data.image_io import load_image
from lantern.errors import LanternError

PLACE = ("file", "start", "size")  # what a reader needs to find an image
FEATURES = Features(
    {name: Value("string") for name in ("file", "name", "caption", "problem")}
    | {name: Value("int64") for name in ("start", "size")}
)
NAMES_SHOWN = 10
log = logging.getLogger(__name__)
Read = Callable[[str, int, int], bytes]  # file, start, size -> an encoded image


class ListedSplit(Sequence):
    """{"image": uint8 [size, size, 3], "caption"} at each access."""

    def __init__(self, rows: Dataset, read: Read, size: int, fingerprint: str) -> None:
        self.rows, self.read, self.size, self.fingerprint = rows, read, size, fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        return {"image": self._image(row).copy(), "caption": row["caption"]}  # writable, as torch.from_numpy wants it

    def _image(self, row: dict[str, Any]) -> np.ndarray:
        try:
            return load_image(self.read(*(row[key] for key in PLACE)), self.size)
        except Exception as error:  # it was read before: the file has changed, or its disk is gone
            raise LanternError(
                f"{row['name']} in {row['file']} can no longer be read ({error}); start again"
            ) from error

    @property
    def captions(self) -> list[str]:
        """All captions, without reading an image."""
        return list(self.rows["caption"])


class ListedImages:
    """Splits by a hash of each image's name, so that adding images moves none; `skipped` maps names to problems."""

    def __init__(
        self,
        source: str,
        items: list,
        list_items: MakeRows,
        read: Read,
        size: int,
        cache_dir: str,
        validation_share: float,
        num_workers: int,
        items_per_shard: int,
    ) -> None:
        """list_items(items) yields a row for each image, or for what should have been one; read fetches its bytes."""
        self.source, self.read, self.size, self.validation_share = source, read, size, validation_share
        self.fingerprint = fingerprint(items, size, _stamps(items))
        folder = Path(cache_dir) / f"list-{self.fingerprint}"
        self.rows = cached_rows(folder, list_items, items, FEATURES, num_workers, items_per_shard)
        problems = zip(self.rows["name"], self.rows["problem"], strict=True)
        self.skipped = {name: problem for name, problem in problems if problem}
        self._report(folder / "skipped.txt")

    def split(self, name: str) -> ListedSplit:
        """train or validation; LanternError if no image falls into it."""
        if name not in ("train", "validation"):
            raise LanternError(f"{self.source} has no split {name!r}; use train or validation")
        chosen = [
            i
            for i, (key, problem) in enumerate(zip(self.rows["name"], self.rows["problem"], strict=True))
            if not problem and (_position(Path(key).name) < self.validation_share) == (name == "validation")
        ]
        if not chosen:
            raise LanternError(f"no image of {self.source} falls into {name}; add images or set data.validation_share")
        key = fingerprint(self.fingerprint, name, self.validation_share)
        return ListedSplit(self.rows.select(chosen), self.read, self.size, key)

    def _report(self, path: Path) -> None:
        if not self.skipped:
            return
        lines = [f"{name}: {problem}" for name, problem in self.skipped.items()]
        path.write_text("\n".join(lines) + "\n")
        shown = "; ".join(lines[:NAMES_SHOWN])
        more = f"; and {len(lines) - NAMES_SHOWN} more" if len(lines) > NAMES_SHOWN else ""
        if all(self.rows["problem"]):
            raise LanternError(f"none of the {len(self.rows)} images in {self.source} can be used: {shown}{more}")
        log.warning(
            "skipped %d of %d images in %s, listed in %s: %s%s",
            len(lines), len(self.rows), self.source, path, shown, more,
        )  # fmt: skip


def _stamps(items: list) -> list[tuple[int, int]]:
    """Sizes and times of the files that items begin with, so that a changed file is listed anew."""
    stats = [Path(item[0]).stat() for item in items]
    return [(stat.st_size, stat.st_mtime_ns) for stat in stats]


def _position(name: str) -> float:
    """Where a file name falls in [0, 1)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / 2**48
