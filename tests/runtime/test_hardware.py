"""What the names of machines in tables say of their processors."""

import pytest
import torch

from lantern.evaluation.provenance import device_name
from lantern.runtime.hardware import is_bf16_fast, vector_instructions


@pytest.mark.parametrize(
    ("amx", "avx512_bf16", "expected"),
    [(True, True, "AMX"), (False, True, "AVX-512 with bf16"), (False, False, "AVX2")],
)
def test_instructions_are_the_fastest_that_there_are(amx, avx512_bf16, expected, monkeypatch):
    """Catches a table that does not say on which of three kinds of processors, up to four times apart, it was made."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert vector_instructions() == expected
    assert is_bf16_fast() is (expected != "AVX2")
    assert device_name().endswith(f"cores, {expected})")
