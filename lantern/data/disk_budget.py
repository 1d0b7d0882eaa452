"""What a table will take on disk: said before it is made, refused above a stated budget or the space that is left."""

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from lantern.errors import LanternError

GIB = 2**30
WORTH_SAYING = 2**26  # bytes
log = logging.getLogger(__name__)


class Budget(NamedTuple):
    """An estimate from above and its limit."""

    what: str  # "tokens of 1,000 train images"
    num_bytes: int
    limit_gib: float
    key: str  # the config key of the limit

    def check(self, folder: Path, share: float = 1.0) -> None:
        """Raises LanternError unless the share that is still to be written fits; `folder` exists."""
        needed, free = share * self.num_bytes / GIB, shutil.disk_usage(folder).free / GIB
        if needed > self.limit_gib:
            raise LanternError(
                f"{self.what} take up to {needed:.3g} GiB, {self.key}={self.limit_gib}; raise it or give fewer"
            )
        if needed > free:
            raise LanternError(
                f"{self.what} take up to {needed:.3g} GiB, {folder} has {free:.3g} GiB left; "
                "make room, give fewer, or choose another disk with paths.cache_dir=…"
            )
        if share * self.num_bytes > WORTH_SAYING:
            log.info("%s take up to %.3g GiB in %s, which has %.3g GiB left", self.what, needed, folder, free)
