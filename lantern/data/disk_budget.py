"""Disk use of a table: estimated and reported before it is computed; an error above the budget or the free space."""

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from lantern.errors import LanternError

GIB = 2**30
REPORTED_FROM = 2**26  # bytes
log = logging.getLogger(__name__)


class Budget(NamedTuple):
    """An upper estimate of a table's size, and its limit."""

    what: str  # "tokens of 1,000 train images"
    num_bytes: int
    limit_gib: float
    key: str  # the config key of the limit
    remedy: str = "raise it or give fewer"  # where the table is above it

    def check(self, folder: Path, share: float = 1.0) -> None:
        """Raises LanternError unless `share` of the table, what is still to be written, fits; `folder` must exist."""
        needed, free = share * self.num_bytes / GIB, shutil.disk_usage(folder).free / GIB
        if needed > self.limit_gib:
            raise LanternError(f"{self.what} take up to {needed:.3g} GiB, {self.key}={self.limit_gib}; {self.remedy}")
        if needed > free:
            raise LanternError(
                f"{self.what} take up to {needed:.3g} GiB, {folder} has {free:.3g} GiB left; "
                "make room, give fewer, or choose another disk with paths.cache_dir=…"
            )
        if share * self.num_bytes > REPORTED_FROM:
            log.info("%s take up to %.3g GiB in %s, which has %.3g GiB left", self.what, needed, folder, free)
