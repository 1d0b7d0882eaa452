"""Laws that subtract masses stay non-negative and normalised on every processor: rounding differs from one kind of
vector instructions to the next, and a code with mass below zero broke the suite on one of them."""

import os
import subprocess
import sys

import pytest
import torch
from support.paths import ROOT, SUPPORT

CAPABILITIES = ("default", "avx2", "avx512")


def available() -> list[str]:
    """The settings of ATEN_CPU_CAPABILITY up to this processor's own, which asking for more would fall back to."""
    best = torch.backends.cpu.get_cpu_capability().lower()
    return [*CAPABILITIES[: CAPABILITIES.index(best) + 1]] if best in CAPABILITIES else ["default"]


@pytest.mark.full
@pytest.mark.parametrize(
    "sizes", [("10", "100", "1024"), pytest.param(("16384",), marks=pytest.mark.full)], ids=["small", "large"]
)
@pytest.mark.parametrize("capability", available())
def test_laws_of_every_rule_stay_laws(capability, sizes):
    """Catches a law written as a difference of masses, a budget that is overspent by rounding, a sum that drifts. Many
    codes in float64, which take longest, are checked with the processor's own kernels alone, fewer codes with all."""
    dtypes = ["float32"] if "16384" in sizes and capability != available()[-1] else ["float32", "float64"]
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, str(SUPPORT / "random_laws.py"), ",".join(dtypes), *sizes],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-600:]
    reached, checked = run.stdout.split()
    assert reached.lower() == capability
    assert int(checked) > 500 * len(dtypes)
