"""Memory of freed tensors, kept for the next ones: the system would clear the pages of every large tensor again, at
each step of a training."""

import ctypes
import sys

KEPT = 2**30  # bytes: tensors up to this size come from kept memory, of which this much at most is free
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """From now on, in this process. Elsewhere than under glibc it changes nothing."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if tune is not None:
        tune(M_TRIM_THRESHOLD, KEPT)
        tune(M_MMAP_THRESHOLD, KEPT)
