"""Memory that a process keeps for its next tensors."""

import platform
import subprocess
import sys
from textwrap import dedent

import pytest

TENSORS = dedent("""
    import resource, sys, torch
    from lantern.training.run.fit import keep_freed_memory
    if "keep" in sys.argv:
        keep_freed_memory()
    torch.ones(2**24)  # 64 MiB, above the largest threshold that glibc takes by itself
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for smaller in range(1, 6):  # glibc's aligned blocks need somewhat more than their size
        torch.ones(2**24 - 4096 * smaller)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
""")


def pages_cleared(*words: str) -> int:
    found = subprocess.run([sys.executable, "-c", TENSORS, *words], capture_output=True, text=True, check=True)
    return int(found.stdout)


@pytest.mark.full
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone can be told to keep freed memory")
def test_a_large_tensor_takes_the_pages_of_the_one_before():
    """5 tensors of some 16,000 pages; huge pages would be fewer, in both cases."""
    plain, kept = pages_cleared(), pages_cleared("keep")
    assert kept < plain / 10
